"""Work is repeated until it succeeds, and each new problem is logged once."""

from __future__ import annotations

import pytest

from podwright.errors import PodwrightError, Unavailable, WrongState
from podwright.guests.shared import until_done


async def test_a_problem_that_stays_is_said_once() -> None:
    problems: list[PodwrightError] = [
        Unavailable("nothing answers"),
        Unavailable("nothing answers"),
        WrongState("it is not ready"),
        Unavailable("nothing answers"),
    ]
    said: list[str] = []

    async def work() -> None:
        if problems:
            raise problems.pop(0)

    await until_done(work, 0.0, said.append)
    assert problems == []
    assert [line.split(".")[0] for line in said] == [
        "nothing answers",
        "it is not ready",
        "nothing answers",
    ]


async def test_an_error_in_our_code_is_not_repeated() -> None:
    async def work() -> None:
        raise KeyError("name")

    with pytest.raises(KeyError):
        await until_done(work, 0.0, lambda problem: None)
