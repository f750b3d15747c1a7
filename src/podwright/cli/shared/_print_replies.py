"""The printing of replies as text or JSON, V-IPU's line for a finished action, lists of names."""

from __future__ import annotations

from collections.abc import Callable

from podwright.cli.shared import _json
from podwright.cli.shared._server_options import JsonEverywhere


def show(arguments: JsonEverywhere, value: object, text: Callable[[], str]) -> int:
    """Print a result as text or JSON. Returns exit code 0."""
    print(_json.text(value) if arguments.json else text())
    return 0


def success(action: str, value: object, arguments: JsonEverywhere) -> int:
    """Print V-IPU's line for a finished action, or its JSON. Returns exit code 0."""
    return show(arguments, value, lambda: f"{action}: success.")


def names(text: str) -> list[str]:
    """Return `a,b,c` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]
