"""The check as HealthCheckProgram, Prolog and Epilog: its exit codes, and its messages to Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from podwright.gpu.health import STAYS_DRAINED, Checked, Settings, check
from tests.gpu.health.node import Node

DRAIN = Settings(act="drain")


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
def test_a_sick_node_is_drained_by_each_hook(
    node: Node, tmp_path: Path, context: str, code: int
) -> None:
    node.gpu(3, 'recovery = "reset"')
    slurm = Slurm()
    checked = ask(node, slurm, tmp_path, context)
    assert (checked.code, checked.outcome.action) == (code, "drained")
    assert slurm.reason == "podwright: GPU 3 needs a reset"


@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd"])
def test_hooks_of_jobs_ask_slurm_nothing_while_all_is_well(
    node: Node, tmp_path: Path, context: str
) -> None:
    slurm = Slurm()
    assert ask(node, slurm, tmp_path, context).code == 0
    assert slurm.asked == []


def test_a_job_starts_on_an_ill_node_that_may_not_be_drained(node: Node, tmp_path: Path) -> None:
    """Otherwise Slurm itself would drain it for the failed Prolog, without a cap."""
    node.gpu(3, 'recovery = "reset"')
    slurm = Slurm()
    warn = msgspec.structs.replace(DRAIN, act="warn")
    assert ask(node, slurm, tmp_path, "prolog_slurmd", warn).code == 0
    assert slurm.state == "idle"


def test_what_is_not_known_changes_nothing(node: Node, tmp_path: Path) -> None:
    """Neither is the node drained, nor a drained one given back."""
    slurm = Slurm()
    node.gpu(3, 'recovery = "reset"')
    assert ask(node, slurm, tmp_path).outcome.action == "drained"
    node.whole("gpus = 8")
    Path(node.root, "dev/kmsg").unlink()
    slurm.asked.clear()
    checked = ask(node, slurm, tmp_path)
    assert (checked.code, checked.outcome.action) == (1, "unknown")
    assert slurm.asked == []
    assert slurm.state == "drained"
    assert ask(node, slurm, tmp_path, "prolog_slurmd").code == 0
    node.log()
    assert ask(node, slurm, tmp_path).outcome.action == "resumed"


def test_a_programs_own_xids_drain_nothing(node: Node, tmp_path: Path) -> None:
    node.log("NVRM: Xid (PCI:0000:40:00): 31, pid=7, name=train, MMU Fault")
    slurm = Slurm()
    assert ask(node, slurm, tmp_path).code == 0
    assert slurm.asked == ["sinfo"]
