"""Ill nodes are kept from jobs by real Slurm, and a cluster never is: twenty nodes, and a
fault that all of them have at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.outer.gpu.ill import RESET, IllLab, wait_idle
from tests.outer.lab import poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
#: For what is Slurm's least part, and all nodes' at once.
mostly_newest = pytest.mark.parametrize(
    "lab", [pytest.param("oldest", marks=pytest.mark.soak), "newest"], indirect=True
)


@pytest.fixture(scope="module", params=["oldest", "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[IllLab]:
    with IllLab(release(request.param)) as started:
        yield started


@pytest.fixture(autouse=True)
def well(lab: IllLab) -> Iterator[None]:
    """Every test leaves all nodes well and idle."""
    yield
    lab.all_gpus()
    lab.settings_of("")
    for name in lab.drained():
        lab.ok("scontrol", "update", f"nodename={name}", "state=resume")
    wait_idle(lab)


def test_one_ill_node_is_drained_and_given_back(lab: IllLab) -> None:
    assert set(lab.check("n1", "n2", "n3").values()) == {"Slurm: fit"}
    lab.gpu("n3", RESET)
    lab.check("n1", "n2", "n3")
    assert lab.drained() == {"n3": "podwright: GPU 1 needs a reset"}
    lab.ok("scontrol", "update", "nodename=n2", "state=drain", "reason=Bob: fan")
    lab.gpu("n3")
    assert lab.check("n2", "n3")["n3"].startswith("Slurm: resumed")
    assert lab.drained() == {"n2": "Bob: fan"}


@mostly_newest
def test_what_a_person_took_over_is_not_given_back(lab: IllLab) -> None:
    lab.gpu("n4", RESET)
    lab.check("n4")
    mine = "reason=podwright: GPU 1 needs a reset, Bob: GPU ordered"
    lab.ok("scontrol", "update", "nodename=n4", "state=drain", mine)
    lab.gpu("n4")
    assert lab.check("n4")["n4"].startswith("Slurm: left")
    assert list(lab.drained()) == ["n4"]


@mostly_newest
def test_a_fault_on_all_nodes_drains_one(lab: IllLab) -> None:
    lab.all_gpus(RESET)
    ends = list(lab.check().values())
    assert list(lab.drained().values()) == ["podwright: GPU 1 needs a reset"]
    assert sum(end.startswith("Slurm: drained") for end in ends) == 1
    first = list(lab.drained())
    assert sum(end.startswith("Slurm: drained") for end in lab.check().values()) == 1
    assert list(lab.drained()) == first
    lab.all_gpus()
    lab.check(*first)
    assert lab.drained() == {}


@mostly_newest
def test_a_broken_check_drains_none(lab: IllLab) -> None:
    """Settings that nobody can read: Slurm itself drains a node whose Prolog or Epilog fails."""
    lab.settings_of("this is no table")
    job = lab.submit("true", "-N20", "--gpus-per-node=1")
    assert lab.wait_over(job, seconds=300)[job].state == "COMPLETED"
    wait_idle(lab)
    assert lab.drained() == {}


def test_a_job_leaves_an_ill_node_by_itself(lab: IllLab) -> None:
    """The node turns ill between two checks: the job's Prolog finds it."""
    lab.gpu("n1", RESET)
    job = lab.submit("echo ran on $SLURMD_NODENAME", "-N1", "--gpus-per-node=1", "--requeue")
    poll("the drained node", lambda: lab.drained() == {"n1": "podwright: GPU 1 needs a reset"})
    poll("its way back", lambda: lab.job(job).fields["Restarts"] != "0")
    lab.start_again(job)
    found = lab.wait_over(job, seconds=120)[job]
    assert (found.state, found.fields["NodeList"]) == ("COMPLETED", "n2")


def test_slurmd_itself_asks_for_the_check(lab: IllLab) -> None:
    """It does at its start, and then at every interval."""
    lab.gpu("n5", RESET)
    lab.kill_daemon("n5")
    lab.start_daemon("n5")
    poll("the drained node", lambda: lab.drained() == {"n5": "podwright: GPU 1 needs a reset"})
    poll("slurmd's log", lambda: "health_check failed: rc:1" in lab.log("n5"))
    assert "GPU 1 needs a reset" in lab.log("n5")


def test_a_number_of_the_driver_drains_no_node(lab: IllLab) -> None:
    lab.gpu("n1", "xid = 31")
    job = lab.submit("exit 3", "-w", "n1", "--gpus-per-node=1")
    assert lab.wait_over(job, seconds=120)[job].state == "FAILED"
    assert lab.check("n1") == {"n1": "Slurm: fit"}
    assert lab.drained() == {}


def test_it_only_warns_until_told_otherwise_and_can_be_taken_back(lab: IllLab) -> None:
    """Last: it changes the lab's files."""
    hook = lab.folder / "hooks" / "node-health"
    lab.configure("--gpus", f"{lab.folder}/inventory.json", "--health")
    lab.gpu("n6", RESET)
    assert lab.check("n6")["n6"].startswith("Slurm: warned")
    assert lab.drained() == {}
    lab.configure("--gpus", "--undo")
    assert not hook.exists()
    text = (lab.folder / "slurm.conf").read_text()
    assert "HealthCheckProgram" not in text
    assert "Prolog" not in text
