"""Logins of 0 to 35 s on any hosts of a launch, by ssh and by srun, with and without mpirun.

ssh and srun are stand-ins on this machine, since it is their duration alone that matters. Eight
launches here, 100 under `make soak`; delays are drawn from a seed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.outer, pytest.mark.timeout(7200)]

REPOSITORY = Path(__file__).parents[2]
COUNT = 100 if os.environ.get("PODWRIGHT_SOAK") else 8
SEED = int(os.environ.get("PODWRIGHT_SEED", "38"))
#: Launches at once. They mostly sleep.
AT_ONCE = 8
LONGEST_S = 35.0
#: What comes before the host is its options'; then the words to run there.
_SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
ms=${2#d}
sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
shift 2
exec /bin/sh -c "$*"
"""
_SRUN = """\
#!/bin/sh
while [ "$1" != -- ]; do
  case $1 in --nodelist=d*) ms=${1#--nodelist=d} ;; esac
  shift
done
sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
shift
exec "$@"
"""


class Slow(NamedTuple):
    """A launch over hosts whose names say how long a login there takes, in milliseconds."""

    hosts: list[str]
    by_slurm: bool
    launcher: str


def drawn(count: int, seed: int) -> list[Slow]:
    """The launches of a seed. Some hosts are quick, in some launches all or none."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        delays = [draw.choice([0.0, draw.uniform(0.0, LONGEST_S)]) for _ in range(4)]
        if number % 4 == 0:
            delays = [0.0, 0.0, 0.0, LONGEST_S - number / count]
        by_slurm = number % 2 == 1
        hosts = [f"d{int(delay * 1000) + n}" for n, delay in enumerate(delays)]
        found.append(Slow(hosts, by_slurm, draw.choice(["mpirun", "local"])))
    return found


def start(launch: Slow, folder: Path) -> subprocess.Popen[str]:
    """Start poprun with the stand-ins."""
    folder.mkdir()
    for name, text in (("ssh", _SSH), ("srun", _SRUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environ = {
        **os.environ,
        "CALLS": str(folder / "calls"),
        "TMPDIR": str(folder),
        "PYTHONPATH": str(REPOSITORY),
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    where = [f"--host={','.join(launch.hosts)}"]
    if launch.by_slurm:
        environ |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": ",".join(launch.hosts)}
        where = []
    words = ["--num-replicas=4", "--num-instances=4", f"--launcher={launch.launcher}"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.launcher.alone", *where, *words, "sh", "-c", "echo $RANK"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )


def test_a_launch_runs_however_long_the_logins_of_its_hosts_take(tmp_path: Path) -> None:
    launches = drawn(COUNT, SEED)
    failed = []
    for first in range(0, COUNT, AT_ONCE):
        batch = launches[first : first + AT_ONCE]
        running = [
            (launch, start(launch, tmp_path / str(number)))
            for number, launch in enumerate(batch, first)
        ]
        for launch, process in running:
            out, err = process.communicate(timeout=600)
            lines = sorted(line.rpartition(" ")[2] for line in out.splitlines())
            if process.returncode or lines != list("0123"):
                failed.append((launch, process.returncode, err))
    print(f"\nseed {SEED}: {COUNT - len(failed)} of {COUNT} launches ran")
    assert not failed
