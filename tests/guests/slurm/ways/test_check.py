"""`podwright slurm check` on sites with broken promises: it reports which ones are broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from podwright.cli import podwright
from podwright.guests.slurm.service import Fixed, Site, SlurmPod, dump
from podwright.guests.slurm.setup._check_by_small_jobs import (
    _check_job_has_partition,
    _check_ordinary_user,
    _check_server_reached,
)
from podwright.guests.slurm.setup._check_environment import ServedCluster
from podwright.guests.slurm.setup._check_partition_counts import shelf
from podwright.wire import LeaseInfo, PartitionInfo, ReadyState
from tests.guests.slurm.ways.test_setup import partition

POD = SlurmPod(type="pod16", cluster="pod16", devices=16, largest=16, domain=16)
#: A Slurm on which nothing is set up: no job gets devices, and none is refused for that.
COMMANDS = {
    "scontrol": "echo 'Reservation podwright not found'; exit 1",
    "sbatch": 'case "$*" in *--test-only*) exit 0;; *) echo full >&2; exit 1;; esac',
    "srun": "echo",
    "scancel": "exit 0",
}


SHELF = tuple(Fixed(name=f"s4-{n}", cluster="pod16", size=4) for n in (1, 2, 3))


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Slurm's commands, whose output a test may replace."""

    def write(name: str, does: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)

    for name, does in COMMANDS.items():
        write(name, does)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return write


@pytest.mark.parametrize("mode", ["native", "shared", "static"])
def test_a_slurm_without_us_keeps_none_of_our_promises(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = "all" if mode == "shared" else ""
    site = Site(
        mode=mode,
        pods=() if mode == "static" else (POD,),
        partitions=SHELF if mode == "static" else (),
        server=str(tmp_path / "none"),
        socket=str(tmp_path / "hooks" / "none.sock"),
        default_ipus=-1,
        shared=part,
    )
    (tmp_path / "native.toml").write_text(dump(site))
    words = ["slurm", "check", "--site", str(tmp_path / "native.toml")]
    assert podwright.main([*words, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["promise"] for row in rows if row["kept"]] == ["jobs without devices run as ever"]
    assert all(row["problem"] for row in rows if not row["kept"])
    assert podwright.main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:3] for line in lines].count("NO ") == len(lines) - 1
    what = "partitions" if mode == "static" else "devices"
    told = f"NO   the counts of {what} are told to Slurm: Reservation podwright not found"
    assert any(line.startswith(told) for line in lines)
    assert podwright.main([*words, "--only", "Are Told"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert podwright.main([*words, "--only", "nothing like it"]) == 2
    assert "jobs without devices run as ever" in capsys.readouterr().err


def test_what_srun_says_of_a_busy_cluster_is_no_part_of_the_jobs_output(
    commands: Callable[[str, str], None],
) -> None:
    queued = "echo 'srun: job 7 queued and waiting for resources' >&2; "
    commands("srun", queued + "echo slurm_7")
    assert _check_job_has_partition(ServedCluster(Site(pods=(POD,))), "--ipus=1", "slurm_") == ""
    commands("srun", queued + "echo answers")
    assert _check_server_reached(ServedCluster(Site(pods=(POD,))), "--ipus=1") == ""
    commands("srun", queued + "exit 1")
    assert "queued and waiting" in _check_job_has_partition(
        ServedCluster(Site(pods=(POD,))), "--ipus=1", "slurm_"
    )


class Told(ServedCluster):
    """A site whose server has these partitions."""

    there: tuple[PartitionInfo, ...] = ()

    @contextmanager
    def partitions(self) -> Iterator[Callable[[], dict[str, PartitionInfo]]]:
        yield lambda: {one.name: one for one in self.there}

    def until(self, probe: Callable[[], bool], job: str = "") -> bool:
        """Check once: nothing changes here."""
        return probe()


def one(name: str, size: int = 4, *, ready: bool = True, holder: str = "") -> PartitionInfo:
    state = ReadyState.ACTIVE if ready else ReadyState.ERROR
    leases = [LeaseInfo(id="l", partition=name, epoch=1, holder=holder)] if holder else []
    return structs.replace(partition(name, size), ready_state=state, leases=leases)


SOUND = (one("s4-1"), one("s4-2"), one("s4-3"))
A_JOBS = one("s4-3", ready=False, holder="Slurm job 7, cluster c")


@pytest.mark.parametrize(
    ("hidden", "there", "why"),
    [
        ("podwright_job:1", SOUND, ""),  # Slurm takes no reservation of nothing
        ("vipu_4:1", SOUND[:2], ""),
        ("vipu_4", (*SOUND[:2], one("s4-3", 2)), ""),
        ("podwright_job:1", (*SOUND[:2], A_JOBS), ""),  # reset for the job that has it
        ("vipu_4:1", (*SOUND[:2], one("s4-3", holder="alice")), ""),
        ("vipu_4:2", (SOUND[0], one("s4-2", ready=False)), ""),
        ("podwright_job:1", SOUND[:2], "Slurm hides 0 of vipu_4, and 1 cannot be handed over"),
        ("vipu_4:1", SOUND, "Slurm hides 1 of vipu_4, and 0 cannot be handed over"),
        ("vipu_4:3", SOUND[:1], "Slurm hides 3 of vipu_4, and 2 cannot be handed over"),
        ("(null)", SOUND[:2], "Slurm hides 0 of vipu_4, and 1 cannot be handed over"),
    ],
)
def test_the_counts_of_a_shelf_are_compared_one_by_one(
    hidden: str,
    there: tuple[PartitionInfo, ...],
    why: str,
    commands: Callable[[str, str], None],
) -> None:
    commands("scontrol", f"echo 'ReservationName=podwright Licenses={hidden} State=ACTIVE'")
    cluster = Told(Site(mode="static", partitions=SHELF))
    object.__setattr__(cluster, "there", there)
    assert shelf(cluster) == why


def test_a_shelf_without_a_reservation_is_not_waited_for(
    commands: Callable[[str, str], None],
) -> None:
    """This happens when Slurm refuses one of zeros, and the service never comes up."""
    commands("scontrol", "echo 'Requested reservation is invalid' >&2; exit 1")
    said = shelf(Told(Site(mode="static", partitions=SHELF), 600.0))
    assert "reservation is invalid" in said
    assert "podwright slurm serve" in said


def test_what_waits_for_room_was_not_tried(
    commands: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands("srun", "exec sleep 60")
    commands("squeue", "printf '%-20s%-60s\\n' PENDING Resources")
    (tmp_path / "native.toml").write_text(dump(Site(pods=(POD,), server=str(tmp_path / "none"))))
    words = ["slurm", "check", "--site", str(tmp_path / "native.toml"), "--wait", "0.5"]
    words += ["--only", "jobs without devices"]
    assert podwright.main([*words, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kept"] is None
    assert "the cluster is full: a job waits for Resources" in row["problem"]
    assert podwright.main(words) == 0
    assert capsys.readouterr().out.startswith("--   jobs without devices run as ever: not tried")
    commands("squeue", "printf '%-20s%-60s\\n' PENDING JobHeldAdmin")
    assert podwright.main(words) == 1


def test_root_also_runs_a_job_as_an_ordinary_user(commands: Callable[[str, str], None]) -> None:
    cluster = ServedCluster(Site(pods=(POD,)))
    commands("runuser", 'shift 3; exec "$@"')
    commands("srun", "echo 'nobody may not open /run/podwright.sock on n1'")
    assert "nobody may not open" in _check_ordinary_user(cluster, "nobody", "--ipus=1")
    commands("srun", "echo answers")
    assert _check_ordinary_user(cluster, "nobody", "--ipus=1") == ""
    commands("srun", "echo 'srun: error: Invalid account or account/partition' >&2; exit 1")
    assert _check_ordinary_user(cluster, "nobody", "--ipus=1").startswith("not tried: nobody may")
