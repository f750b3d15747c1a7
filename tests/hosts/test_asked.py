"""Commands on many hosts at once: each one's words, and nothing left running."""

from __future__ import annotations

import os

import pytest

from podwright.hosts import marked
from podwright.hosts._asked import ask_all


@pytest.fixture
def environ() -> dict[str, str]:
    """An environment by which our processes are known."""
    return {**os.environ, "PODWRIGHT_X": os.urandom(8).hex()}


def test_each_is_heard_and_none_waits_for_one_that_hangs(environ: dict[str, str]) -> None:
    hangs = "echo so far; sleep 600 & exec sleep 600"  # which holds the output, too
    lines = ("echo one", hangs, "echo why >&2; exit 3")
    one, late, three = ask_all([["sh", "-c", line] for line in lines], environ, 3)
    assert (one.out, one.err, one.code) == ("one\n", "", 0)
    assert one.before <= one.after
    assert late.code is None
    assert (three.out, three.err, three.code) == ("", "why\n", 3)
    for left in marked("PODWRIGHT_X", environ["PODWRIGHT_X"]):  # nobody's, as on a far host
        os.kill(left.pid, 9)


def test_where_one_cannot_be_started_none_is_left(environ: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError):
        ask_all([["sleep", "600"], ["/no/such/program"]], environ, 60)
    assert marked("PODWRIGHT_X", environ["PODWRIGHT_X"]) == []
