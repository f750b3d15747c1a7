"""The example in each docstring of `popdist` gives what it says, without poprun."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import popdist
from tests.docstrings import run_example

FUNCTIONS = [name for name in popdist.__all__ if inspect.isfunction(getattr(popdist, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_is_right(name: str) -> None:
    if name not in ("init", "initializeBackend"):
        popdist.init()
    try:
        run_example(getattr(popdist, name), {"popdist": popdist, "np": np})
    finally:
        popdist.finalizeBackend()
