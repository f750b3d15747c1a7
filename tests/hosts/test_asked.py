"""Commands on many hosts at once: the output of each, and nothing left running."""

from __future__ import annotations

import os

import pytest

from podwright.hosts import marked
from podwright.hosts._remote_commands import ask_all


@pytest.fixture
def environ() -> dict[str, str]:
    """An environment by which our processes are known."""
    return {**os.environ, "PODWRIGHT_X": os.urandom(8).hex()}


def test_each_is_heard(environ: dict[str, str]) -> None:
    lines = ("echo one", "echo why >&2; exit 3")
    one, two = ask_all([["sh", "-c", line] for line in lines], environ, 300)
    assert (one.out, one.err, one.code) == ("one\n", "", 0)
    assert one.before <= one.after
    assert (two.out, two.err, two.code) == ("", "why\n", 3)


def test_one_that_hangs_is_not_waited_for(environ: dict[str, str]) -> None:
    """Though what it has started holds its output for long."""
    (late,) = ask_all([["sh", "-c", "sleep 600 & exec sleep 600"]], environ, 0.5)
    assert late.code is None
    for left in marked("PODWRIGHT_X", environ["PODWRIGHT_X"]):  # nobody's, as on a far host
        os.kill(left.pid, 9)


def test_where_one_cannot_be_started_none_is_left(environ: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError):
        ask_all([["sleep", "600"], ["/no/such/program"]], environ, 60)
    assert marked("PODWRIGHT_X", environ["PODWRIGHT_X"]) == []
