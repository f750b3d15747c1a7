"""The check as HealthCheckProgram, Prolog and Epilog: its exit codes, and its messages to Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from podwright.gpu.health import STAYS_DRAINED, Checked, Settings, check
from podwright.gpu.health._settings import Check
from tests.gpu.health.node import Node

OFF = {name: Check(level="off") for name in ("clock", "disks")}
DRAIN = Settings(act="drain", checks=OFF)


class Slurm:
    """One node in a partition of one."""

    def __init__(self) -> None:
        self.state, self.reason = "idle", "none"
        self.asked: list[str] = []

    def __call__(self, words: Sequence[str]) -> str:
        self.asked.append(" ".join(words[:1]))
        if words[0] == "sinfo":
            return f"n1|gpu|{self.state}|1700000000|{self.reason}\n"
        told = dict(word.split("=", 1) for word in words[2:])
        self.state = "drained" if told["State"] == "DRAIN" else "idle"
        self.reason = told.get("Reason", "none")
        return ""


def ask(
    node: Node, slurm: Slurm, folder: Path, context: str = "", settings: Settings = DRAIN
) -> Checked:
    environ = {**node.environ, "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}
    if context:
        environ["SLURM_SCRIPT_CONTEXT"] = context
    return check(
        settings, environ, root=node.root, folder=folder, slurm=slurm, sleep=lambda s: None
    )


@pytest.mark.parametrize(
    ("context", "code"), [("", 1), ("prolog_slurmd", STAYS_DRAINED), ("epilog_slurmd", 0)]
)
def test_an_ill_node(node: Node, tmp_path: Path, context: str, code: int) -> None:
    node.gpu(3, "xid = 79")
    slurm = Slurm()
    checked = ask(node, slurm, tmp_path, context)
    assert (checked.code, checked.outcome.action) == (code, "drained")
    assert slurm.reason == "podwright: GPU 3 XID 79"


@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd"])
def test_hooks_of_jobs_ask_slurm_nothing_while_all_is_well(
    node: Node, tmp_path: Path, context: str
) -> None:
    slurm = Slurm()
    assert ask(node, slurm, tmp_path, context).code == 0
    assert slurm.asked == []


def test_a_job_starts_on_an_ill_node_that_may_not_be_drained(node: Node, tmp_path: Path) -> None:
    """Otherwise Slurm itself would drain it for the failed Prolog, without a cap."""
    node.gpu(3, "xid = 79")
    slurm = Slurm()
    warn = msgspec.structs.replace(DRAIN, act="warn")
    assert ask(node, slurm, tmp_path, "prolog_slurmd", warn).code == 0
    assert slurm.state == "idle"


def test_a_job_that_has_ended_gets_time_to_go(node: Node, tmp_path: Path) -> None:
    node.process(50, "slurmd")
    node.process(70, "train")
    node.gpu(1, "processes = [{ pid = 70 }]")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            node.whole("gpus = 8")

    environ = {
        **node.environ,
        "SLURMD_NODENAME": "n1",
        "SLURM_JOB_ID": "7",
        "SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
    }
    done = check(DRAIN, environ, root=node.root, folder=tmp_path, slurm=Slurm(), sleep=sleep)
    assert slept == [1, 1]
    assert done.report.findings == ()
    node.gpu(1, "processes = [{ pid = 70 }]")
    done = check(DRAIN, environ, root=node.root, folder=tmp_path, slurm=Slurm(), sleep=slept.append)
    assert "Job 7 has just ended here" in done.report.findings[0].means
    assert done.code == 0


def test_programs_own_xids_drain_nothing(node: Node, tmp_path: Path) -> None:
    node.gpu(3, "xid = 31")
    slurm = Slurm()
    assert ask(node, slurm, tmp_path).code == 0
    assert slurm.asked == ["sinfo"]
