"""A twin's answers out of recorded dialogues with a real slurmctld."""

from __future__ import annotations

import pytest

from podwright.errors import Unavailable
from podwright.slurm.twin import Granted, InstalledSlurm, Refused, Twin, Waits
from tests.slurm.twin.dialogue import REQUESTS, SITE, PlayedCell, played
from tests.slurm.twin.recorded import read_cluster

SLURM = InstalledSlurm((22, 5), release="22.05.8")


def ask(name: str) -> tuple[Granted | Waits | Refused, PlayedCell]:
    cell = played(name)
    with Twin(read_cluster(SITE)[0], SLURM, cell=cell) as twin:
        return twin.ask(REQUESTS[name], as_uid=12345), cell


def test_a_granted_job_names_nodes_cores_memory_and_gpus() -> None:
    answer, _ = ask("granted")
    assert isinstance(answer, Granted)
    (node,) = answer.nodes
    assert (node.name, node.gpus, node.memory) == ("n1", (0, 1), 400)
    assert node.cpus
    assert answer.partition == "main"


def test_a_job_that_waits_has_slurms_reason() -> None:
    answer, _ = ask("waits")
    assert isinstance(answer, Waits)
    assert answer.reason == "BeginTime"


def test_a_refused_job_has_slurms_line() -> None:
    answer, _ = ask("refused")
    assert isinstance(answer, Refused)
    assert "invalid partition specified: nowhere" in answer.messages
    assert "error:" in answer.message


def test_salloc_is_ended_and_its_job_taken_back() -> None:
    answer, cell = ask("salloc")
    assert isinstance(answer, Granted)
    assert answer.nodes[0].gpus
    assert "stop allocation 9" in cell.requests
    assert any(request.startswith("run scancel") for request in cell.requests)


def test_slurmctld_starts_twice_with_its_clean_state_copied_between() -> None:
    _, cell = ask("granted")
    steps = [r for r in cell.requests if r.startswith(("daemon", "stop", "copy"))]
    assert steps[:4] == [
        "daemon /usr/sbin/slurmctld -D -c as 64030",
        "stop slurmctld 15",
        "copy state state.clean",
        "daemon /usr/sbin/slurmctld -D as 64030",
    ]
    assert cell.closed


def test_a_slurmctld_that_does_not_start_is_named_with_its_reason() -> None:
    cell = PlayedCell(
        {
            "run sinfo -h -o %D": [[1, "", "no answer"]],
            "alive slurmctld": [False],
            "read log/slurmctld": ["slurmctld: fatal: Invalid node configuration\n"],
        }
    )
    twin = Twin(read_cluster(SITE)[0], SLURM, cell=cell)
    with pytest.raises(Unavailable, match="fatal: Invalid node configuration"):
        twin.__enter__()
    assert cell.closed
