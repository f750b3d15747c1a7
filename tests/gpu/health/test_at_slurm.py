"""The check as HealthCheckProgram, Prolog and Epilog: its exit codes, and its messages to Slurm."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from podwright.gpu.health import STAYS_DRAINED, Checked, Settings, check
from podwright.testing import FakeSlurm
from tests.gpu.health.node import Node, one_node

DRAIN = Settings(act="drain")


def ask(
    node: Node, slurm: FakeSlurm, folder: Path, context: str = "", settings: Settings = DRAIN
) -> Checked:
    environ = {**node.environ, "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}
    if context:
        environ["SLURM_SCRIPT_CONTEXT"] = context
    return check(
        settings, environ, root=node.root, folder=folder, slurm=slurm.text, sleep=lambda s: None
    )


@pytest.mark.parametrize(
    ("context", "code"), [("", 1), ("prolog_slurmd", STAYS_DRAINED), ("epilog_slurmd", 0)]
)
def test_a_sick_node_is_drained_by_each_hook(
    node: Node, tmp_path: Path, context: str, code: int
) -> None:
    node.gpu(3, 'recovery = "reset"')
    slurm = one_node()
    checked = ask(node, slurm, tmp_path, context)
    assert (checked.code, checked.outcome.action) == (code, "drained")
    assert slurm.nodes["n1"].reason == "podwright: GPU 3 needs a reset"


@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd"])
def test_hooks_of_jobs_ask_slurm_nothing_while_all_is_well(
    node: Node, tmp_path: Path, context: str
) -> None:
    slurm = one_node()
    assert ask(node, slurm, tmp_path, context).code == 0
    assert slurm.commands == []


def test_a_job_starts_on_an_ill_node_that_may_not_be_drained(node: Node, tmp_path: Path) -> None:
    """Otherwise Slurm itself would drain it for the failed Prolog, without a cap."""
    node.gpu(3, 'recovery = "reset"')
    slurm = one_node()
    warn = msgspec.structs.replace(DRAIN, act="warn")
    assert ask(node, slurm, tmp_path, "prolog_slurmd", warn).code == 0
    assert slurm.nodes["n1"].state == "idle"


def test_what_is_not_known_changes_nothing(node: Node, tmp_path: Path) -> None:
    """Neither is the node drained, nor a drained one given back."""
    slurm = one_node()
    node.gpu(3, 'recovery = "reset"')
    assert ask(node, slurm, tmp_path).outcome.action == "drained"
    node.whole("gpus = 8")
    Path(node.root, "dev/kmsg").unlink()
    slurm.commands.clear()
    checked = ask(node, slurm, tmp_path)
    assert (checked.code, checked.outcome.action) == (1, "unknown")
    assert slurm.commands == []
    assert slurm.nodes["n1"].state == "drained"
    assert ask(node, slurm, tmp_path, "prolog_slurmd").code == 0
    node.log()
    assert ask(node, slurm, tmp_path).outcome.action == "resumed"


def test_a_programs_own_xids_drain_nothing(node: Node, tmp_path: Path) -> None:
    node.log("NVRM: Xid (PCI:0000:40:00): 31, pid=7, name=train, MMU Fault")
    slurm = one_node()
    assert ask(node, slurm, tmp_path).code == 0
    assert [argv[0] for argv in slurm.commands] == ["sinfo"]
