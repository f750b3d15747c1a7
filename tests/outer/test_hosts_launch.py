"""poprun over four real hosts by ssh: both launchers, every ending, nothing left on any host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.outer.lab import HostsLab

pytestmark = [pytest.mark.outer]

REPOSITORY = Path(__file__).parents[2]
FOUR = ("--host=a,b,c,d", "--num-replicas=4", "--num-instances=4")
BOTH = pytest.mark.parametrize("launcher", ["local", "mpirun"])
#: Waits to be ended; `deaf` does not hear it.
WAIT = (
    "import os, signal, sys, time\n"
    "if 'deaf' in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('up', flush=True)\n"
    "time.sleep(1000)\n"
)


class Hosts:
    """poprun on host a, with a server in one function; and what it leaves on each host."""

    def __init__(self, lab: HostsLab) -> None:
        self.lab = lab
        self.environ = {
            **os.environ,
            "CALLS": "/tmp/calls",
            "PODWRIGHT_TEST_HOSTS": str(lab.folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, folder: str = str(REPOSITORY)) -> subprocess.Popen[str]:
        poprun = ["env", "-C", folder, sys.executable, "-m", "tests.launcher.alone", *words]
        process = subprocess.Popen(
            self.lab.place("a").wrap(poprun),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *words: str, folder: str = str(REPOSITORY)) -> tuple[int, str, str]:
        process = self.start(*words, folder=folder)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def up(self, *words: str, count: int) -> subprocess.Popen[str]:
        """A run whose instances have all said so."""
        process = self.start(*words)
        assert process.stdout
        for _ in range(count):
            assert process.stdout.readline().endswith("up\n"), process.communicate()
        return process

    def signal(self, process: subprocess.Popen[str], number: int) -> None:
        """To poprun itself, which nsenter has started."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(children.read_text().split()[0]), number)

    def left(self) -> list[str]:
        found = []
        for name in self.lab.names:
            if not self.lab.is_up(name):
                continue
            run = ["ps", "-eo", "pid=,args="]
            for line in self.lab.exec(name, *run).stdout.splitlines():
                if any(mark in line for mark in ("podwright", "prted", "mpirun", "alone", "deaf")):
                    found.append(f"{name}: {line}")
            for folder in ("/tmp", "/dev/shm"):
                names = self.lab.exec(name, "ls", folder).stdout.split()
                found += [f"{name}: {folder}/{n}" for n in names if n.startswith("podwright-run")]
        return found

    def leaves_nothing(self) -> None:
        until = time.monotonic() + 300
        while left := self.left():
            assert time.monotonic() < until, left
            time.sleep(0.1)


@pytest.fixture(scope="module")
def lab() -> Iterator[HostsLab]:
    with HostsLab(["a", "b", "c", "d"]) as found:
        yield found


@pytest.fixture
def hosts(lab: HostsLab) -> Iterator[Hosts]:
    found = Hosts(lab)
    lab.exec("a", "rm", "-f", "/tmp/calls")
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for name in lab.names:
        if not lab.is_up(name):
            lab.revive(name)


@BOTH
def test_instances_run_in_blocks_on_all_hosts(hosts: Hosts, launcher: str) -> None:
    script = 'echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $(hostname)"'
    code, out, err = hosts.run(
        *("--host", "a, b,c,d", f"--launcher={launcher}", "--print-topology=1"),
        *("--num-replicas=8", "--num-instances=8", "sh", "-c", script),
    )
    assert code == 0, err
    for i in range(8):
        wanted = f"[1,{i}]<stdout>: {i} {i % 2} 2 {hosts.lab.address['a']} {'abcd'[i // 2]}\n"
        assert wanted in out
    assert "| hosts     |   a   |   b   |   c   |   d   |" in out
    hosts.leaves_nothing()


def test_mpi_works_between_hosts_that_poprun_is_not_on(hosts: Hosts) -> None:
    program = (
        "from mpi4py import MPI\nimport os\nw = MPI.COMM_WORLD\n"
        "print(w.allreduce(w.rank), os.uname().nodename, os.environ['ODD'])\n"
    )
    hosts.environ["ODD"] = "a 'b' \"c\" $d;\\"
    code, out, err = hosts.run(
        *("-H", "b, d", "--num-replicas=4", "--num-instances=4", sys.executable, "-c", program)
    )
    assert code == 0, err
    lines = [f"[1,{i}]<stdout>: 6 {'bd'[i // 2]} {hosts.environ['ODD']}" for i in range(4)]
    assert sorted(out.splitlines()) == lines
    hosts.leaves_nothing()


def test_instances_meet_over_ipv6(hosts: Hosts) -> None:
    for number, name in enumerate("ab", 1):
        place = f"fd00:77::{number}/64"
        hosts.lab.exec(name, "ip", "address", "add", place, "dev", "eth0", "nodad")
    program = (
        "import os, numpy, popdist\n"
        "popdist.init()\n"
        "print(popdist.allReduceSum(numpy.ones(1))[0], os.environ['MASTER_ADDR'])\n"
    )
    line = ("--host=a,b", "--num-replicas=2", "--num-instances=2", "--launcher=local")
    code, out, err = hosts.run("--host-subnet=fd00:77::/64", *line, sys.executable, "-c", program)
    for number, name in enumerate("ab", 1):
        hosts.lab.exec(name, "ip", "address", "del", f"fd00:77::{number}/64", "dev", "eth0")
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[1,{i}]<stdout>: 2.0 fd00:77::1" for i in range(2)]


@BOTH
def test_the_first_failure_is_named_with_its_host_and_ends_all(hosts: Hosts, launcher: str) -> None:
    program = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '2': print('sorry', file=sys.stderr); sys.exit(7)\n"
        "time.sleep(1000)\n"
    )
    code, _, err = hosts.run(f"--launcher={launcher}", *FOUR, sys.executable, "-c", program)
    assert code == 7, err
    assert "instance 2 on c ended with exit code 7. Its last lines:" in err
    assert "sorry" in err
    hosts.leaves_nothing()


@BOTH
def test_all_are_asked_before_any_is_ended(hosts: Hosts, launcher: str) -> None:
    program = (
        "import os, signal, sys, time\n"
        "def asked(*_):\n"
        "    time.sleep(0.3)\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, asked)\n"
        "print('up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    process = hosts.up(f"--launcher={launcher}", *FOUR, sys.executable, "-c", program, count=4)
    hosts.signal(process, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert sorted(out.splitlines()) == [f"[1,{i}]<stdout>: saved" for i in range(4)], err
    hosts.leaves_nothing()


@BOTH
def test_a_host_that_crashes_ends_the_run(hosts: Hosts, launcher: str) -> None:
    words = (f"--launcher={launcher}", "--grace=1", *FOUR, sys.executable, "-c", WAIT)
    process = hosts.up(*words, count=4)
    hosts.lab.kill("c")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75, err
    assert "host c is lost (instance 2)" in err
    hosts.leaves_nothing()


def test_all_start_again_on_the_hosts_that_are_left(hosts: Hosts) -> None:
    again = (
        "import os, time\n"
        "r = os.environ\n"
        "if r['PODWRIGHT_RESTART'] == '0':\n"
        "    print('up', flush=True)\n"
        "    time.sleep(1000)\n"
        "print(r['RANK'], r['LOCAL_RANK'], r['LOCAL_WORLD_SIZE'], os.uname().nodename)\n"
    )
    words = ("--grace=1", "--max-restarts=2", "--host=a,b,c,d", "--num-replicas=3")
    process = hosts.up(*words, "--num-instances=3", sys.executable, "-c", again, count=3)
    hosts.lab.kill("b")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    where = [f"[1,{i}]<stdout>: {i} 0 1 {'acd'[i]}" for i in range(3)]
    assert sorted(out.splitlines()) == where
    assert "starting all instances again (1 of 2)" in err
    assert "host b: it does not answer; all instances are started on a, c, d" in err
    calls = hosts.lab.exec("a", "cat", "/tmp/calls").stdout
    assert calls.count("Acquire") == 1  # the partition was kept all the time
    hosts.leaves_nothing()


def test_a_guardian_that_dies_costs_no_host(hosts: Hosts) -> None:
    again = f"import os\nif os.environ['PODWRIGHT_RESTART'] == '1': raise SystemExit\n{WAIT}"
    line = ("--launcher=local", "--grace=1", "--max-restarts=1", *FOUR)
    process = hosts.up(*line, sys.executable, "-c", again, count=4)
    found = hosts.lab.exec(
        "b", "pgrep", "-f", "podwright.launcher.hosts._remote_main"
    ).stdout.split()
    hosts.lab.exec("b", "kill", "-KILL", found[1])
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "are started on" not in err
    hosts.leaves_nothing()


@BOTH
def test_kill_9_of_poprun_leaves_nothing_on_any_host(hosts: Hosts, launcher: str) -> None:
    line = (f"--launcher={launcher}", *FOUR, sys.executable, "-c", WAIT, "deaf")
    process = hosts.up(*line, count=4)
    hosts.signal(process, signal.SIGKILL)
    hosts.leaves_nothing()


def test_an_instance_that_ignores_sigterm_is_ended_all_the_same(hosts: Hosts) -> None:
    line = ("--launcher=local", "--grace=1", *FOUR, sys.executable, "-c", WAIT, "deaf")
    process = hosts.up(*line, count=4)
    hosts.signal(process, signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, err
    hosts.leaves_nothing()


@pytest.mark.parametrize("victim", ["relay", "guardian"])
def test_a_relay_or_guardian_that_is_killed_ends_the_run(hosts: Hosts, victim: str) -> None:
    line = ("--launcher=local", "--grace=1", *FOUR, sys.executable, "-c", WAIT)
    process = hosts.up(*line, count=4)
    found = hosts.lab.exec(
        "b", "pgrep", "-f", "podwright.launcher.hosts._remote_main"
    ).stdout.split()
    # The way there is a shell that has become the relay; its child is the guardian.
    pid = found[0] if victim == "relay" else found[1]
    hosts.lab.exec("b", "kill", "-KILL", pid)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75, err
    assert "host b" in err
    hosts.leaves_nothing()


def test_a_host_that_is_cut_off_ends_its_own(
    hosts: Hosts, hosts_lab: Callable[..., HostsLab]
) -> None:
    line = ("--launcher=local", "--grace=1", *FOUR, sys.executable, "-c", WAIT)
    process = hosts.up(*line, count=4)
    hosts.lab.exec("d", "ip", "link", "set", "eth0", "down")
    try:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 75, err
        assert "host d is lost (instance 3): it does not answer any more" in err
        hosts.leaves_nothing()
    finally:
        hosts.lab.kill("d")


@BOTH
@pytest.mark.parametrize("victim", ["relay", "guardian", "ssh"])
def test_what_broke_is_blamed_and_no_instance(hosts: Hosts, launcher: str, victim: str) -> None:
    """mpirun ends innocent instances on other hosts as soon as it misses a daemon."""
    process = hosts.up(f"--launcher={launcher}", *FOUR, sys.executable, "-c", WAIT, count=4)
    if victim == "ssh":
        host, words = "a", ["pgrep", "-f", "^/usr/bin/ssh .* b "]
    elif victim == "relay":
        host, words = "b", ["pgrep", "-o", "-f", "podwright.launcher.hosts._remote_main"]
    else:
        host, words = "b", ["pgrep", "-x", "podwright-guard"]
    pids = hosts.lab.exec(host, *words).stdout.split()
    assert pids, hosts.lab.exec(host, "ps", "-ef").stdout
    hosts.lab.exec(host, "kill", "-KILL", *pids)
    _, err = process.communicate(timeout=300)
    wanted = {
        "relay": "host b is lost (instance 1): ",
        "guardian": "host b: its guardian process was ended",
        "ssh": "host b is lost (instance 1): its ssh was ended by signal 9 (SIGKILL)",
    }
    errors = [line for line in err.splitlines() if line.startswith("POPRUN ERROR: ")]
    assert errors[0].startswith(f"POPRUN ERROR: {wanted[victim]}"), err
    assert "Warning" not in err
    assert process.returncode == 75
    hosts.leaves_nothing()


@BOTH
def test_a_function_and_its_results_travel_without_a_shared_file_system(
    hosts: Hosts, launcher: str
) -> None:
    """Each host has a /tmp of its own; the function is in no file that any of them has."""
    program = (
        "import os, podwright\n"
        "def work(data):\n"
        "    return os.uname().nodename, os.environ['RANK'], len(data), bytes(10_000_000)\n"
        f"job = podwright.launch(work, bytes(20_000_000), instances=4, host='b,c',\n"
        f"    launcher={launcher!r}, offline_mode=True)\n"
        "found = job.results(300)\n"
        "assert all(row[2:] == (20_000_000, bytes(10_000_000)) for row in found)\n"
        "print([row[:2] for row in found])\n"
        "def bad(): raise OSError(5, 'of', os.uname().nodename)\n"
        "try: podwright.launch(bad, host='d', launcher='local', offline_mode=True).results(300)\n"
        "except OSError as error: print(error.filename, error.__notes__)\n"
    )
    words = ["env", "-C", "/tmp", sys.executable, "-c", program]
    done = subprocess.run(
        hosts.lab.place("a").wrap(words),
        env=hosts.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[('b', '0'), ('b', '1'), ('c', '2'), ('c', '3')]",
        "d ['in instance 0 on d']",
    ]
    hosts.leaves_nothing()
