"""Copying folders to hosts by rsync, to several hosts at a time, with progress."""

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

#: The number of hosts that are copied to at the same time. More would share one network card.
WIDTH = 8
_PERCENT = re.compile(rb"(\d{1,3})%")
_CREATED = re.compile(rb"Number of regular files transferred: ([\d,.]+)")


class Copied(NamedTuple):
    """The result of a copy to one host.

    files: number that were sent. problem, todo: set if it failed.
    """

    host: str
    folder: str
    files: int = 0
    problem: str = ""
    todo: str = ""


#: Called with the folder and the percents of each host whose copy is running.
Progress = Callable[[str, Mapping[str, int]], None]


def copy_folder(
    folder: str,
    hosts: Sequence[str],
    environ: Mapping[str, str],
    progress: Progress = lambda folder, percents: None,
    *,
    identity: str = "",
) -> list[Copied]:
    """Copy a folder to the same path on hosts.

    Files that exist only there stay: nothing is deleted.
    """
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
    """One run of rsync."""

    def __init__(
        self, program: str, folder: str, host: str, environ: Mapping[str, str], identity: str
    ) -> None:
        import subprocess  # 10 ms; not every launch copies

        self.host, self.folder, self.percent, self.over = host, folder, 0, False
        ssh = ssh_command(host, [], environ, identity=identity) or ["ssh"]
        # The part before the host: rsync appends the host and its remote command.
        shell = shlex.join(ssh[: ssh.index("--")])
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
        self._output = b""

    def read(self) -> None:
        """Read the output that has come since the last call."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.handle, 65536):
                self._output = (self._output + data)[-16384:]
            self.over = True
        percents = _PERCENT.findall(self._output)
        if percents:
            self.percent = int(percents[-1])

    def end(self) -> Copied:
        """Return the result of a copy that is over."""
        assert self._process.stdout
        code = self._process.wait()
        self._process.stdout.close()
        if code:
            output = self._output.decode(errors="replace")
            lines = [
                line for line in output.splitlines() if "rsync" not in line or "failed" in line
            ]
            problem, todo = explain(self.host, "\n".join(lines or [output]), code)
            return Copied(self.host, self.folder, problem=problem, todo=todo)
        created = _CREATED.search(self._output)
        files = int(re.sub(rb"\D", b"", created[1])) if created else 0
        return Copied(self.host, self.folder, files)

    def stop(self) -> None:
        """Kill the copy, whatever it is doing."""
        from subprocess import TimeoutExpired

        assert self._process.stdout
        self._process.kill()
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(5)
        self._process.stdout.close()


def show_percents(write: Callable[[str], None], interval: float = 0.2) -> Progress:
    """Return a Progress that rewrites one line on a terminal."""
    last = 0.0

    def show(folder: str, percents: Mapping[str, int]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < interval:
            return
        last = now
        each = ", ".join(f"{host} {percent}%" for host, percent in percents.items())
        write(f"\r\x1b[Kcopying {folder}: {each}")

    return show
