"""The example in each public docstring of `podwright` gives what it says."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import podwright
from tests.docstrings import run_example
from tests.whole.conftest import Pod

#: What is called. Others are values, choices and errors.
SHOWN = [
    name
    for name in podwright.__all__
    if inspect.isfunction(shown := getattr(podwright, name))
    or shown in (podwright.Job, podwright.Partition, podwright.Pod, podwright.PodAdmin)
]


@pytest.mark.parametrize("name", SHOWN)
def test_the_example_of_a_docstring_prints_what_it_says(server: Pod, name: str) -> None:
    try:
        run_example(getattr(podwright, name), {"podwright": podwright, "asyncio": asyncio})
    finally:
        for left in server.partitions():
            server.good("vipu", "remove", "partition", left)
