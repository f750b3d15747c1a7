"""Folders onto hosts by rsync, several hosts at a time, with how far each has come."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podwright.hosts._local import find_program
from podwright.hosts._ssh import explain, ssh_command

#: Hosts that are copied to at the same time: more share one network card anyway.
WIDTH = 8
_PERCENT = re.compile(rb"(\d{1,3})%")
_CREATED = re.compile(rb"Number of regular files transferred: ([\d,.]+)")


class Copied(NamedTuple):
    """How a folder came onto a host. files: that were sent; problem, todo: if it did not."""

    host: str
    folder: str
    files: int = 0
    problem: str = ""
    todo: str = ""


#: Is told the percents of each host under way.
Progress = Callable[[str, Mapping[str, int]], None]


def copy_folder(
    folder: str,
    hosts: Sequence[str],
    environ: Mapping[str, str],
    progress: Progress = lambda folder, percents: None,
    *,
    identity: str = "",
) -> list[Copied]:
    """Bring a folder to the same place on hosts. What is only there stays: nothing is deleted."""
    import select

    program = find_program("rsync", environ)
    if program is None:
        todo = "apt-get install rsync, here and on the hosts"
        return [Copied(h, folder, problem="there is no rsync here", todo=todo) for h in hosts]
    waiting, running, done = list(hosts), list[_Copy](), list[Copied]()
    try:
        while waiting or running:
            while waiting and len(running) < WIDTH:
                running.append(_Copy(program, folder, waiting.pop(0), environ, identity))
            select.select([copy.handle for copy in running], [], [], 1.0)
            for copy in running:
                copy.read()
            progress(folder, {copy.host: copy.percent for copy in running})
            done += [copy.end() for copy in running if copy.over]
            running = [copy for copy in running if not copy.over]
    finally:
        for copy in running:
            copy.stop()
    order = {host: number for number, host in enumerate(hosts)}
    return sorted(done, key=lambda copied: order[copied.host])


class _Copy:
    """One rsync."""

    def __init__(
        self, program: str, folder: str, host: str, environ: Mapping[str, str], identity: str
    ) -> None:
        import subprocess  # 10 ms; not every launch copies

        self.host, self.folder, self.percent, self.over = host, folder, 0, False
        way = ssh_command(host, [], environ, identity=identity) or ["ssh"]
        # Up to the host: rsync adds that, and what is to be run there.
        shell = shlex.join(way[: way.index("--")])
        options = ["-a", "-s", "--mkpath", "--stats", "--info=progress2", "-e", shell]
        place = f"{folder.rstrip('/')}/"
        self._process = subprocess.Popen(
            [program, *options, "--", place, f"{host}:{place}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environ, "LC_ALL": "C"},
        )
        assert self._process.stdout
        self.handle = self._process.stdout.fileno()
        os.set_blocking(self.handle, False)
        self._said = b""

    def read(self) -> None:
        """What it said since."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.handle, 65536):
                self._said = (self._said + data)[-16384:]
            self.over = True
        found = _PERCENT.findall(self._said)
        if found:
            self.percent = int(found[-1])

    def end(self) -> Copied:
        """How it went, once it is over."""
        assert self._process.stdout
        code = self._process.wait()
        self._process.stdout.close()
        if code:
            said = self._said.decode(errors="replace")
            lines = [line for line in said.splitlines() if "rsync" not in line or "failed" in line]
            problem, todo = explain(self.host, "\n".join(lines or [said]), code)
            return Copied(self.host, self.folder, problem=problem, todo=todo)
        found = _CREATED.search(self._said)
        files = int(re.sub(rb"\D", b"", found[1])) if found else 0
        return Copied(self.host, self.folder, files)

    def stop(self) -> None:
        """Whatever it was at."""
        from subprocess import TimeoutExpired

        assert self._process.stdout
        self._process.kill()
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(5)
        self._process.stdout.close()


def show_percents(write: Callable[[str], None], every: float = 0.2) -> Progress:
    """A Progress that writes one line over itself, on a terminal."""
    last = 0.0

    def show(folder: str, percents: Mapping[str, int]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < every:
            return
        last = now
        each = ", ".join(f"{host} {percent}%" for host, percent in percents.items())
        write(f"\r\x1b[Kcopying {folder}: {each}")

    return show
