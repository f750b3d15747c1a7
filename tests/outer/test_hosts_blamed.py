"""Of a launch over three hosts one process is killed, and poprun names that one, and no other.

The instances hang on each other: each fails with a code of its own as soon as a peer is gone, so
reports of innocent instances race the one report that explains them. Parts, hosts, launchers and
moments are drawn from a seed; 300 of them in soak, a few here. The table of all orders, without
processes: tests/launcher/test_blame.py.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.outer.lab import HostsLab

pytestmark = [pytest.mark.outer]

REPOSITORY = Path(__file__).parents[2]
SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
COUNT = int(os.environ.get("PODWRIGHT_KILLS", "300" if SOAK else "16"))
SEED = int(os.environ.get("PODWRIGHT_SEED", "25"))
#: Launches at once.
TRIOS = 3
#: How many of all kills poprun may explain with a process that does not explain them, or not at
#: all; never with an innocent instance or host.
UNKNOWN = max(1, COUNT // 30)

#: Each instance hangs on instance 0, which hangs on all.
SOCKETS = """
import os, selectors, socket, sys
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank:
    import time
    while True:
        try:
            peers = [socket.create_connection(where)]
            break
        except OSError:
            time.sleep(0.05)
else:
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(where)
    server.listen(size)
    peers = [server.accept()[0] for _ in range(size - 1)]
print("up", flush=True)
ready = selectors.DefaultSelector()
for peer in peers:
    ready.register(peer, selectors.EVENT_READ)
ready.select()
sys.exit(14)
"""
#: An MPI program between two collectives.
MPI = """
import time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
print("up", flush=True)
while True:
    MPI.COMM_WORLD.Barrier()
    time.sleep(0.02)
"""


class Kill(NamedTuple):
    """What is killed: a part on the host of poprun (at 0) or on another one, seconds after up."""

    part: str
    launcher: str
    program: str
    at: int
    after: float


#: By the name of a process, or by words of its command line; on the host of poprun, on others.
HERE = {"keeper": "podwright-keep", "guardian": "podwright-guard", "mpirun": "prterun"}
THERE = {
    "relay": "podwright.launcher.hosts._remote_main",
    "far guardian": "podwright-guard",
    "daemon": "prted",
    "script": "/wrapper ",
    "instance": "",
}
_OF_MPIRUN = ("mpirun", "daemon")


def drawn(count: int, seed: int) -> list[Kill]:
    """The kills of a seed."""
    draw = random.Random(seed)
    found = []
    parts = [*HERE, "ssh", *THERE]
    for number in range(count):
        part = parts[number % len(parts)]
        launcher = "mpirun" if part in _OF_MPIRUN else draw.choice(["mpirun", "local"])
        program = draw.choice([SOCKETS, MPI]) if launcher == "mpirun" else SOCKETS
        at = 0 if part in HERE else draw.choice([1, 2])
        found.append(Kill(part, launcher, program, at, draw.choice([0.0, draw.uniform(0.0, 1.0)])))
    return found


def wanted(kill: Kill, host: str) -> str:
    """What poprun has to say of it, as a regular expression."""
    return {
        "keeper": "poprun's keeper process was ended",
        "guardian": "poprun's guardian process was ended",
        "mpirun": "mpirun was ended by signal 9",
        "ssh": rf"host {host} is lost \(instance {kill.at}\): its ssh was ended by signal 9",
        "relay": rf"host {host} is lost \(instance {kill.at}\): ",
        "far guardian": f"host {host}: its guardian process was ended",
        "daemon": f"mpirun's daemon on {host} was ended by signal 9",
        "script": f"instance {kill.at} on {host} was ended by signal 9",
        "instance": f"instance {kill.at} on {host} was ended by signal 9",
    }[kill.part]


def judged(kill: Kill, host: str, err: str) -> str:
    """Whether the one that was killed is named: "right", "not known", or "innocent"."""
    lines = [line for line in err.splitlines() if line.startswith("POPRUN ERROR: ")]
    if len(lines) == 1 and re.search("POPRUN ERROR: " + wanted(kill, host), lines[0]):
        return "right"
    blamed = re.search(r"POPRUN ERROR: instance (\d+)", err)
    place = re.search(r"POPRUN ERROR: host (\w+)", err)
    if (blamed and int(blamed[1]) != kill.at) or (place and place[1] != host):
        return "innocent"
    return "not known"


class Trio:
    """Three hosts with a launch over them."""

    def __init__(self, lab: HostsLab, number: int) -> None:
        self.lab = lab
        self.hosts = [f"{letter}{number}" for letter in "abc"]
        self.process: subprocess.Popen[str] | None = None

    def start(self, kill: Kill) -> None:
        words = ["--num-replicas=3", "--num-instances=3", "--grace=2"]
        line = ["-m", "tests.launcher.alone", f"--host={','.join(self.hosts)}", *words]
        line += [f"--launcher={kill.launcher}", sys.executable, "-c", kill.program]
        self.process = subprocess.Popen(
            self.lab.place(self.hosts[0]).wrap(
                ["env", "-C", str(REPOSITORY), sys.executable, *line]
            ),
            env={
                **os.environ,
                "CALLS": "/tmp/calls",
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def up(self) -> None:
        assert self.process
        assert self.process.stdout
        for _ in self.hosts:
            assert self.process.stdout.readline().endswith("up\n"), self.process.communicate()

    def kill(self, kill: Kill) -> None:
        self._kill(kill, self._victims(kill))

    def _victims(self, kill: Kill) -> list[str]:
        there = self.hosts[kill.at]
        if kill.part in HERE:
            return self._find(self.hosts[0], HERE[kill.part])
        if kill.part == "ssh":
            return self._find(self.hosts[0], "ssh", f" {there} ")
        if kill.part == "instance":
            return self._find(there, "python", kill.program.split()[-1])
        return self._find(there, THERE[kill.part])

    def _kill(self, kill: Kill, victims: list[str]) -> None:
        host = self.hosts[0] if kill.part in HERE or kill.part == "ssh" else self.hosts[kill.at]
        assert self.lab.exec(host, "kill", "-9", *victims).returncode == 0

    def _find(self, host: str, mark: str, also: str = "") -> list[str]:
        found = []
        listed = self.lab.exec(host, "ps", "-ww", "-eo", "pid=,comm=,args=").stdout
        for line in listed.splitlines():
            pid, name, *rest = line.split(None, 2)
            words = (rest[0] if rest else "") + " "
            if also and name.startswith(mark):
                found += [pid] if also in words else []
            elif not also and (
                name == mark or (mark in words and not name.startswith("podwright"))
            ):
                found.append(pid)
        assert found, (mark, also, listed)
        return found[:1] if mark == "/wrapper " else found

    def end(self, kill: Kill) -> str:
        assert self.process
        _, err = self.process.communicate(timeout=300)
        if kill.part not in ("script", "instance"):  # requeue rules ask for one code
            assert self.process.returncode == 75, (kill, err)
        return err

    def clear(self) -> None:
        for host in self.hosts:
            script = "rm -rf /tmp/podwright-run-* /dev/shm/podwright-run-* /tmp/calls"
            self.lab.exec(host, "sh", "-c", script)


@pytest.mark.timeout(7200)
def test_who_was_killed_is_named_and_nobody_else() -> None:
    names = [f"{letter}{number}" for number in range(TRIOS) for letter in "abc"]
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    kills = drawn(COUNT, SEED)
    with HostsLab(names) as lab:
        trios = [Trio(lab, number) for number in range(TRIOS)]
        for first in range(0, COUNT, TRIOS):
            batch = list(zip(trios, kills[first : first + TRIOS], strict=False))
            for trio, kill in batch:
                trio.start(kill)
            for trio, kill in batch:
                trio.up()
                time.sleep(kill.after)
                trio.kill(kill)
            for number, (trio, kill) in enumerate(batch, first):
                err = trio.end(kill)
                verdict = judged(kill, trio.hosts[kill.at], err)
                verdicts[verdict] += 1
                if verdict != "right":
                    shape = "MPI" if kill.program == MPI else "sockets"
                    wrong.append(
                        f"{number}: {kill.part} at {kill.at} ({kill.launcher}, {shape}): "
                        f"{verdict}: {err[-600:]}"
                    )
                trio.clear()
    print(f"\nseed {SEED}, {COUNT} kills: {dict(verdicts)}")
    for text in wrong:
        print(text)
    assert verdicts["innocent"] == 0, wrong
    assert verdicts["not known"] <= UNKNOWN, wrong


def test_an_innocent_instance_is_recognized_as_innocent() -> None:
    """The judge itself."""
    kill = Kill("relay", "mpirun", SOCKETS, 1, 0.0)
    assert judged(kill, "b0", "POPRUN ERROR: instance 2 on c0 ended with exit code 14") == (
        "innocent"
    )
    assert judged(kill, "b0", "POPRUN ERROR: host c0 is lost (instance 2): x") == "innocent"
    assert judged(kill, "b0", "POPRUN ERROR: host b0 is lost (instance 1): x") == "right"
    assert judged(kill, "b0", "POPRUN ERROR: mpirun was ended by signal 9") == "not known"
