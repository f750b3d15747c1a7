"""Each verb and noun of `vipu` and `vipu-admin` has a function, which reads the same options.

The parser gets the class of options from the command's table, and the function gets it from
ACTIONS, which is loaded later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from podwright.cli import vipu, vipu_admin
from podwright.cli.admin._verbs import ACTIONS as ADMIN_ACTIONS
from podwright.cli.partitions._verbs import ACTIONS as VIPU_ACTIONS
from podwright.cli.shared._noun_grammar import NounVerb, PlainVerb

#: Its function looks at one option, and then calls one of two others.
CHOOSES = ("create certificate",)


def options_of(verbs: Sequence[NounVerb | PlainVerb]) -> Iterator[tuple[str, type]]:
    """The class of options for each verb and noun, as the parser has it."""
    for verb in verbs:
        if isinstance(verb, PlainVerb):
            yield verb.name, verb.options
        else:
            for noun in verb.nouns:
                yield f"{verb.name} {noun.name}", noun.options


@pytest.mark.parametrize(
    ("verbs", "actions"),
    [(vipu._VERBS, VIPU_ACTIONS), (vipu_admin._TABLE, ADMIN_ACTIONS)],
    ids=["vipu", "vipu-admin"],
)
def test_the_function_reads_the_options_that_the_parser_has(
    verbs: Sequence[NounVerb | PlainVerb], actions: Mapping[str, Callable[..., Any]]
) -> None:
    wrong = {}
    for name, expected in options_of(verbs):
        if name not in CHOOSES:
            options = inspect.getclosurevars(actions[name]).nonlocals["options"]
            if options is not expected:
                wrong[name] = (options, expected)
    assert wrong == {}
