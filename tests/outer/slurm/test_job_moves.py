"""Jobs that agreed to it make room for the first in the queue, inside themselves."""

from __future__ import annotations

import os
import random
import shlex
import sys
from pathlib import Path

import pytest

from tests.outer.lab import poll
from tests.outer.slurm.looking import Looking
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

#: Says where it is each time it starts; ends in order to move once it may, or for good.
PROGRAM = """
trap '>asked; while [ ! -e may-end ]; do sleep 0.1; done; >ended; exit 75' USR1
echo "$PODWRIGHT_RESTART $SLURM_JOB_ID $(uname -n)" >>ups.$SLURM_JOB_ID
until [ -e may-finish ]; do sleep 0.1; done
"""
_WORDS = "--launcher=local --move-signal=USR1 --num-instances=1"


def program(lab: NativeLab, folder: Path, *words: str) -> str:
    """A batch script in `folder`: a launch that can be moved. words: of poprun.

    Root's, who finds this machine's Python from within another release, too.
    """
    environ = f"-u SLURM_NODELIST -u SLURM_JOB_NODELIST PODWRIGHT_SOCKET={lab.server_socket}"
    command = f"{sys.executable} -m podwright.cli.poprun {' '.join(words)} {_WORDS}"
    run = f"env {environ} {command} sh -c {shlex.quote(PROGRAM)}"
    inside = f"cd {folder} && exec {run}"
    return f"exec chroot /proc/{os.getpid()}/root sh -c {shlex.quote(inside)}"


def places(lab: NativeLab) -> dict[int, set[tuple[int, int]]]:
    """By job: its devices."""
    return {
        int(name.removeprefix("slurm_")): {
            (ref.domain, ref.offset) for gcd in one.gcds for ref in gcd
        }
        for name, one in lab.partitions().items()
    }


def comment(lab: NativeLab, job: int) -> str:
    return lab.ok("squeue", "-h", "-j", str(job), "-O", "admin_comment:200").strip()


def _tells(words: str) -> bool:
    return " moves to other devices, by " in words


def test_a_job_moves_inside_itself_and_the_next_one_starts(lab: NativeLab, tmp_path: Path) -> None:
    """Half of the pod is free, and scattered; the job that stands in the way goes on elsewhere."""
    script = program(lab, tmp_path, "--movable", "--move-seconds=900", "--num-replicas=16")
    jobs = [lab.submit(script, "--ipus=16", "--ipus-movable", "-t600") for _ in range(4)]
    poll("their first words", lambda: all((tmp_path / f"ups.{job}").exists() for job in jobs))
    before = places(lab)
    jobs.sort(key=lambda job: min(before[job]))
    lab.ok("scancel", str(jobs[0]), str(jobs[2]))
    figures = lab.state()["figures"]
    big = lab.submit("true", "--ipus=32")
    said = poll("who moves", lambda: next(filter(_tells, [comment(lab, big)]), ""))
    assert "; a job moves to other devices, by " in said
    assert lab.job(big).state == "PENDING"
    site = ["--site", f"{lab.folder}/podwright/native.toml"]
    done = lab.command("vipu", "explain", "--job", str(big), *site, user="root")
    assert "a job moves to other devices" in done.stdout

    def is_asked(job: int) -> bool:
        done = lab.command("vipu", "explain", "--job", str(job), *site, user="root")
        return "it is asked to move to other devices" in done.stdout

    (mover,) = filter(is_asked, (jobs[1], jobs[3]))
    (tmp_path / "may-end").touch()
    ended = lab.wait_over(big)
    assert ended[big].state == "COMPLETED"
    poll("its second start", lambda: len((tmp_path / f"ups.{mover}").read_text().split("\n")) == 3)
    first, second = (tmp_path / f"ups.{mover}").read_text().splitlines()
    assert (first[0], second[0], first[1:]) == ("0", "1", second[1:])
    moved = lab.job(mover)
    assert (moved.state, moved.fields["Restarts"]) == ("RUNNING", "0")
    after = places(lab)
    assert after[mover].isdisjoint(before[mover])
    assert len(after[mover]) == 16
    poll("its count", lambda: lab.state()["figures"]["moved"] == figures["moved"] + 1)
    assert lab.state()["figures"]["waited"] == figures["waited"]


def test_ipus_movable_without_devices_is_refused(lab: NativeLab) -> None:
    done = lab.run("sbatch", "--ipus-movable", "--wrap=true")
    assert done.returncode != 0
    assert "--ipus-movable belongs to --ipus=N" in done.stderr


class Twice(Looking):
    """Looks all the while whether a device is given to two jobs."""

    def __init__(self, lab: NativeLab) -> None:
        super().__init__()
        self.found: list[str] = []
        self.looks = 0
        self._lab = lab

    def look(self) -> None:
        taken = self._lab.taken()
        self.looks += 1
        self.found += [device for device in taken if taken.count(device) > 1]


@pytest.mark.soak
def test_no_device_is_given_twice_while_jobs_move_under_a_random_load(
    lab: NativeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight launches stand scattered over the pod; jobs of all sizes come and go between them."""
    rng = random.Random(11)
    (tmp_path / "may-end").touch()
    script = program(lab, tmp_path, "--movable", "--move-seconds=5", "--num-replicas=4")
    fill = [lab.submit(script, "--ipus=4", "--ipus-movable", "-t600") for _ in range(16)]
    poll("their words", lambda: all((tmp_path / f"ups.{job}").exists() for job in fill), seconds=90)
    before = places(lab)
    fill.sort(key=lambda job: min(before[job]))
    lab.ok("scancel", *map(str, fill[::2]))
    movers, figures = fill[1::2], lab.state()["figures"]
    with Twice(lab) as twice:
        sizes = [rng.choice((1, 2, 4, 8, 8, 16, 16, 32)) for _ in range(40)]
        others = [lab.batch(f"sleep {rng.uniform(0, 4):.2f}", f"--ipus={size}") for size in sizes]

        def enough() -> bool:
            over = all(lab.jobs()[job].over for job in others)
            return over or lab.state()["figures"]["moved"] - figures["moved"] >= 6

        poll("moves", enough, seconds=300, every=1)
        again = lab.jobs()
        lab.ok("scancel", *map(str, movers[::2]))  # whoever moved twice is not asked any more
        jobs = lab.wait_over(*others, seconds=300)
    now = lab.state()["figures"]
    new = {name: now[name] - figures[name] for name in now}
    requeues = sum(int(jobs[job].fields["Restarts"]) for job in (*others, *movers))
    with capsys.disabled():
        print(
            f"\n{len(others)} jobs of 1 to 32 devices, {new['moved']} moves, {new['stayed']} plans "
            f"given up; without partition {new['bare'] + new['unproven']}, given twice "
            f"{len(twice.found)} in {twice.looks} looks, requeues {requeues}, waited for shape "
            f"{new['waited']}"
        )
    assert {jobs[job].state for job in others} == {"COMPLETED"}
    assert {again[job].state for job in movers} == {"RUNNING"}
    assert (new["bare"], new["unproven"], twice.found, requeues) == (0, 0, [], 0)
    assert new["waited"] == 0
    assert new["moved"] > 0
