"""Of eight hosts one has a slow network card, one a busy one, and one a processor that others use:
each is named, and no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import HostsLab, LabError, Release, SlurmLab, poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

NAMES = tuple(f"h{k}" for k in range(1, 9))
#: Sends to the host ctl as fast as the card lets it, over several connections.
LOAD = """
import socket, sys, threading
def send():
    with socket.create_connection(("ctl", int(sys.argv[1]))) as link:
        while True:
            link.sendall(bytes(65536))
ends = [threading.Thread(target=send) for _ in range(4)]
for end in ends: end.start()
"""
SINK = """
import socket, threading
def drop(link):
    while link.recv(1 << 20): pass
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=drop, args=(server.accept()[0],), daemon=True).start()
"""


#: In place of salloc and srun: those of another release, which has no Python of its own. Theirs is
#: a script in the lab's folder, which leaves that release's root by the host's first process.
OTHER = """#!/bin/sh
for word do
    shift
    [ "$word" != "{python}" ] || word="{folder}/bin/python"
    set -- "$@" "$word"
done
exec chroot "{root}" "/usr/bin/{name}" "$@"
"""
PYTHON = """#!/bin/sh
export PATH="{folder}/tools:$PATH"
exec nsenter -t 1 -m -r -- "{python}" "$@"
"""


class BenchLab:
    """Eight hosts whose cards give 40 Mb/s: less than this machine's cores can do, busy or not."""

    def __init__(self, stack: ExitStack, of: Release) -> None:
        self.hosts = stack.enter_context(HostsLab(["ctl", *NAMES]))
        self.slurm = stack.enter_context(SlurmLab(hosts=self.hosts, cpus=2, release=of))
        self.python = sys.executable
        if of.root:
            known = {"python": sys.executable, "folder": self.slurm.folder, "root": of.root}
            for name in ("salloc", "srun"):
                self.slurm.write(f"tools/{name}", OTHER.format(name=name, **known))
            self.python = str(self.slurm.write("bin/python", PYTHON.format(**known)))
        for name in NAMES:
            self.shape(name, 40)

    def shape(self, name: str, mbit: int) -> None:
        words = f"tc qdisc replace dev eth0 root tbf rate {mbit}mbit burst 64kb latency 50ms"
        done = self.hosts.exec(name, *words.split())
        if done.returncode:
            raise LabError(done.stderr)

    def start(self, host: str, program: str, *words: str) -> subprocess.Popen[str]:
        command = self.hosts.place(host).wrap([sys.executable, "-c", program, *words])
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @contextmanager
    def loaded(self, host: str) -> Iterator[None]:
        """Others use six sevenths of the processor time that measurements on this host would get.
        By stops: nine hosts share this machine's cores, so real load would be all hosts' alike."""
        space = os.readlink(f"/proc/{self.hosts.first_process(host)}/ns/pid")
        over = threading.Event()

        def measuring() -> Iterator[int]:
            for name in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    if b"nodebench._rank" in Path(f"/proc/{name}/cmdline").read_bytes() and (
                        os.readlink(f"/proc/{name}/ns/pid") == space
                    ):
                        yield int(name)

        def hold() -> None:
            now: list[int] = []
            while not over.is_set():
                started = time.monotonic()
                send(now, signal.SIGSTOP)
                now = [*measuring()]  # may take longer than they run for
                send(now, signal.SIGSTOP)
                stopped = time.monotonic() - started
                over.wait(max(0.09 - stopped, 0))
                send(now, signal.SIGCONT)
                over.wait(0.015)

        def send(pids: list[int], signum: signal.Signals) -> None:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            send([*measuring()], signal.SIGCONT)

    def bench(self, *words: str) -> Any:
        done = self.slurm.run(
            self.python, "-m", "podwright.cli.podwright", "node", "bench", "--json",
            "--seconds=1", "--way=tcp", f"--nodelist={','.join(NAMES)}",
            f"--keep={self.slurm.folder}/bench.jsonl", *words,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert len(found["rounds"]) <= 6, found
        return found


@pytest.fixture(scope="module", params=["oldest", pytest.param("newest", marks=pytest.mark.soak)])
def lab(request: pytest.FixtureRequest) -> Iterator[BenchLab]:
    with ExitStack() as stack:
        yield BenchLab(stack, release(request.param))


def slow(found: Any) -> set[str]:
    """Who is slow to others. Memory is one machine's here, whoever measures it."""
    return {one["part"] for one in found["slow"] if one["what"] == "to other nodes"}


@pytest.mark.soak
def test_one_has_a_processor_that_others_use(lab: BenchLab) -> None:
    """In soak alone: beside other work no processor is this host's, and all look alike."""
    with lab.loaded("h5"):
        found = lab.bench("--way=none")
    assert {(one["part"], one["what"]) for one in found["slow"]} == {("h5", "memory copy")}, found
    assert found["rounds"] == []


def test_one_is_shaped_and_one_is_loaded(lab: BenchLab) -> None:
    found = lab.bench()
    assert slow(found) == set(), found
    lab.shape("h3", 12)
    sink = lab.start("ctl", SINK)
    assert sink.stdout is not None
    load = lab.start("h6", LOAD, sink.stdout.readline().strip())
    try:
        found = lab.bench()
        assert slow(found) == {"h3", "h6"}, found
        changed = {one["node"] for one in found["changes"] if "between" in one["what"]}
        assert changed == {"h3", "h6"}
    finally:
        for process in (load, sink):
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
    poll("no job is left", lambda: not lab.slurm.ok("squeue", "-h").strip())
