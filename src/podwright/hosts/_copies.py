"""Copying folders to hosts by rsync, to several hosts at a time, with progress."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from podwright.hosts._local_host_facts import find_program
from podwright.hosts._ssh import explain, ssh_command

#: The number of hosts that are copied to at the same time. More would share one network card.
COPIES_AT_ONCE = 8
_RSYNC_PERCENT = re.compile(rb"(\d{1,3})%")
_TRANSFERRED_FILE_COUNT = re.compile(rb"Number of regular files transferred: ([\d,.]+)")


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
    identity_file: str = "",
) -> list[Copied]:
    """Copy a folder to the same path on hosts.

    Files that exist only there stay: nothing is deleted.
    """
    import select

    rsync_path = find_program("rsync", environ)
    if rsync_path is None:
        todo = "apt-get install rsync, here and on the hosts"
        return [
            Copied(target_host, folder, problem="there is no rsync here", todo=todo)
            for target_host in hosts
        ]
    waiting_hosts, running_copies, finished_copies = (
        list(hosts),
        list[_RunningRsync](),
        list[Copied](),
    )
    try:
        while waiting_hosts or running_copies:
            while waiting_hosts and len(running_copies) < COPIES_AT_ONCE:
                running_copies.append(
                    _RunningRsync(rsync_path, folder, waiting_hosts.pop(0), environ, identity_file)
                )
            select.select([copy.handle for copy in running_copies], [], [], 1.0)
            for copy in running_copies:
                copy.read()
            progress(folder, {copy.host: copy.percent for copy in running_copies})
            finished_copies += [copy.end() for copy in running_copies if copy.over]
            running_copies = [copy for copy in running_copies if not copy.over]
    finally:
        for copy in running_copies:
            copy.stop()
    host_order = {host: position for position, host in enumerate(hosts)}
    return sorted(finished_copies, key=lambda copied: host_order[copied.host])


class _RunningRsync:
    def __init__(
        self,
        rsync_path: str,
        folder: str,
        host: str,
        environ: Mapping[str, str],
        identity_file: str,
    ) -> None:
        import subprocess  # 10 ms; not every launch copies

        self.host, self.folder, self.percent, self.over = host, folder, 0, False
        ssh_arguments = ssh_command(host, [], environ, identity_file=identity_file) or ["ssh"]
        # The part before the host: rsync appends the host and its remote command.
        remote_shell = shlex.join(ssh_arguments[: ssh_arguments.index("--")])
        rsync_options = ["-a", "-s", "--mkpath", "--stats", "--info=progress2", "-e", remote_shell]
        folder_path = f"{folder.rstrip('/')}/"
        self._process = subprocess.Popen(
            [rsync_path, *rsync_options, "--", folder_path, f"{host}:{folder_path}"],
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
            while chunk := os.read(self.handle, 65536):
                self._output = (self._output + chunk)[-16384:]
            self.over = True
        percents = _RSYNC_PERCENT.findall(self._output)
        if percents:
            self.percent = int(percents[-1])

    def end(self) -> Copied:
        """Return the result of a copy that is over."""
        assert self._process.stdout
        code = self._process.wait()
        self._process.stdout.close()
        if code:
            output = self._output.decode(errors="replace")
            error_lines = [
                line for line in output.splitlines() if "rsync" not in line or "failed" in line
            ]
            problem, todo = explain(self.host, "\n".join(error_lines or [output]), code)
            return Copied(self.host, self.folder, problem=problem, todo=todo)
        created_match = _TRANSFERRED_FILE_COUNT.search(self._output)
        count = int(re.sub(rb"\D", b"", created_match[1])) if created_match else 0
        return Copied(self.host, self.folder, count)

    def stop(self) -> None:
        """Kill the copy, whatever it is doing."""
        from subprocess import TimeoutExpired

        assert self._process.stdout
        self._process.kill()
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(5)
        self._process.stdout.close()


def show_percents(write_text: Callable[[str], None], interval_s: float = 0.2) -> Progress:
    """Return a Progress that rewrites one line on a terminal."""
    last_shown = 0.0

    def show(folder: str, percents: Mapping[str, int]) -> None:
        nonlocal last_shown
        now = time.monotonic()
        if now - last_shown < interval_s:
            return
        last_shown = now
        percents_text = ", ".join(f"{host} {percent}%" for host, percent in percents.items())
        write_text(f"\r\x1b[Kcopying {folder}: {percents_text}")

    return show
