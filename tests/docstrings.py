"""Runs the example of a docstring."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Mapping
from typing import Any


def run_example(shown: type | Callable[..., Any], names: Mapping[str, object]) -> None:
    """Run the lines behind `>>>`, with these names known. A docstring without any is a failure."""
    text = shown.__doc__ or ""
    example = doctest.DocTestParser().get_doctest(text, dict(names), shown.__name__, None, None)
    assert example.examples, f"{shown.__name__} has no example"
    said: list[str] = []
    result = doctest.DocTestRunner().run(example, out=said.append)
    assert result.failed == 0, "".join(said)
