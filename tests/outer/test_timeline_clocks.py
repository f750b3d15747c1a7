"""A launch over a host whose clock is another one: a time namespace, as ssh would lead to."""

from __future__ import annotations

import os
import sys

import pytest

from podwright.timeline import account, read_timeline
from tests.launcher.conftest import Launcher, launcher
from tests.launcher.test_timeline import PROGRAM

__all__ = ["launcher"]
pytestmark = [pytest.mark.outer]

#: Seconds by which the clock of host `later` is ahead.
AHEAD = 5000
_SSH = f"""\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case "$host" in
later) exec unshare --time --boottime {AHEAD} --monotonic {AHEAD} --fork /bin/sh -c "$*" ;;
esac
exec /bin/sh -c "$*"
"""


def test_times_of_all_hosts_are_on_one_clock(launcher: Launcher) -> None:
    folder = launcher.folder / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(_SSH)
    (folder / "ssh").chmod(0o755)
    launcher.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    path = launcher.folder / "trace"
    program = PROGRAM.replace("0.1 *", "1.0 *")  # longer than a busy machine holds up the other
    assert program != PROGRAM
    ran = launcher.run(
        *(f"--trace={path}", "--host=here,later", "--num-replicas=2", "--num-instances=2"),
        *("--launcher=local", "--mpi-local-args=-x MASTER_ADDR=127.0.0.1"),
        *(sys.executable, "-c", program + "print(int(time.clock_gettime(7)), flush=True)\n"),
    )
    assert ran.code == 0, ran
    ends = [int(line.split()[-1]) for line in ran.out.splitlines() if line.split()[-1].isdigit()]
    assert max(ends) - min(ends) > AHEAD / 2  # the clocks do differ
    found = read_timeline(str(path))
    clocks = {i.annotations["host"]: i.annotations for i in found.instants if i.name == "clock"}
    error = clocks["later"]["error"]
    assert abs(clocks["later"]["offset"] + AHEAD * 10**9) <= error
    assert abs(clocks["here"]["offset"]) <= clocks["here"]["error"]
    assert account(found).clock_error < 30
    # Both came to the same collectives: within the error they began and ended together.
    by_flow: dict[int, list[int]] = {}
    for piece in found.of("collective"):
        for flow in piece.flows:
            by_flow.setdefault(flow, []).append(piece.end)
    assert len(by_flow) == 7
    assert all(len(ends) == 2 for ends in by_flow.values())
    launch = found.of("launch")[0]
    for piece in found.of("collective"):
        assert launch.begin <= piece.begin <= piece.end <= launch.end
    slowest = account(found).slowest
    assert slowest is not None
    assert slowest.rank == 1
    launcher.leaves_nothing()
