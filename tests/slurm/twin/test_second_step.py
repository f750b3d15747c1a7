"""A step whose result a late node may have caused runs once more; its second result counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from podwright.errors import WrongState
from podwright.slurm.twin import Granted, InstalledSlurm, Submission, Task, Twin
from podwright.slurm.twin import _twin as module
from podwright.slurm.twin._step_runner import UncertainStep
from tests.slurm.twin.dialogue import SITE, played
from tests.slurm.twin.recorded import read_cluster

ONE = (Task(0, "n1", None),)
TWO = (*ONE, Task(1, "n2", None))
SILENT = WrongState("the job starts, but no step starts: no reason given")


def tasks(
    monkeypatch: pytest.MonkeyPatch, results: Sequence[object]
) -> tuple[tuple[Task, ...], int]:
    """Return the tasks, and the number of steps that ran and were ended."""
    left, ended = list(results), 0

    class Steps:
        def __init__(self, *_: object) -> None: ...
        def start(self, names: Sequence[str]) -> None: ...

        def run(self, request: Submission, answer: Granted) -> object:
            result = left.pop(0)
            if isinstance(result, Exception):
                raise result
            return result

        def end(self) -> None:
            nonlocal ended
            ended += 1

    monkeypatch.setattr(module, "StepRunner", Steps)
    slurm = InstalledSlurm((22, 5), release="22.05.8")
    with Twin(read_cluster(SITE)[0], slurm, cell=played("granted")) as twin:
        granted = Granted(nodes=(), partition="main", record="")
        outcome = twin.tasks(Submission("srun", ("--nodes=1-2",)), granted)
    return outcome, ended


def test_a_certain_result_needs_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tasks(monkeypatch, [TWO]) == (TWO, 1)


@pytest.mark.parametrize("first", [ONE, SILENT])
def test_an_uncertain_result_gives_way_to_the_second(
    monkeypatch: pytest.MonkeyPatch, first: tuple[Task, ...] | WrongState
) -> None:
    assert tasks(monkeypatch, [UncertainStep(first), TWO]) == (TWO, 2)


def test_the_same_result_twice_is_slurms_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tasks(monkeypatch, [UncertainStep(ONE), UncertainStep(ONE)]) == (ONE, 2)


def test_a_step_that_never_starts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongState, match="no step starts"):
        tasks(monkeypatch, [UncertainStep(SILENT), UncertainStep(SILENT)])
