"""What the words of `vipu-admin` share: lists of names, and what is printed of an answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from podwright.cli import _json


def names(text: str) -> list[str]:
    """`a,b,c` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def success(what: str, value: object, arguments: argparse.Namespace) -> int:
    """V-IPU's line for what was done, or its JSON. Returns exit code 0."""
    print(_json.text(value) if wants_json(arguments) else f"{what}: success.")
    return 0


def show(arguments: argparse.Namespace, value: object, text: Callable[[], str]) -> int:
    """What was found, as text or JSON. Returns exit code 0."""
    print(_json.text(value) if wants_json(arguments) else text())
    return 0


def wants_json(arguments: argparse.Namespace) -> bool:
    """Is JSON wanted?"""
    return bool(getattr(arguments, "json", False))
