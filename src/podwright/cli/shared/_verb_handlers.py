"""The functions behind verbs and nouns, without the type of their options.

Each makes the options of a verb from what its parser returned, connects, and calls a function with
both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from podwright.api import Pod, PodAdmin
from podwright.cli.shared._listing import AnyListOptions, ListView, show_list
from podwright.cli.shared._server_options import Connect, JsonEverywhere

_Options = TypeVar("_Options", bound=JsonEverywhere)
_ListOptions = TypeVar("_ListOptions", bound=AnyListOptions)
Action = Callable[[argparse.Namespace, Connect], int]


def on_pod(
    options: type[_Options],
    run: Callable[[_Options, Pod], int],
    check: Callable[[_Options], None] | None = None,
) -> Action:
    """Return what a verb does with the pod. check: raises for mistakes, before it connects."""

    def act(parsed: argparse.Namespace, connect: Connect) -> int:
        arguments = options(parsed)
        if check is not None:
            check(arguments)
        with Pod(connect(arguments)) as pod:
            return run(arguments, pod)

    return act


def on_admin(options: type[_Options], run: Callable[[_Options, PodAdmin], int]) -> Action:
    """Return what a verb does that is for administrators."""
    return on_pod(options, lambda arguments, pod: run(arguments, pod.admin))


def list_of(options: type[_ListOptions], read: Callable[[_ListOptions, Pod], ListView]) -> Action:
    """Return what a verb does that shows a list."""
    return on_pod(
        options, lambda arguments, pod: show_list(arguments, lambda: read(arguments, pod))
    )
