"""Logs of what instances write, byte for byte, in two files for each (`--log-dir`)."""

from __future__ import annotations

import contextlib
import os
import resource

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Logs:
    """The files `instance-N.out` and `instance-N.err` in a folder: standard output and error.

    New output is appended, so a job that starts again keeps its history.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[tuple[int, str], int] = {}

    def add(self, index: int, stream: str, data: bytes) -> str:
        """Write an instance's output. stream: `stdout` or `stderr`.

        Returns what went wrong; empty if nothing did. After an error, write no more.
        """
        try:
            handle = self._files.get((index, stream), -1)
            if handle < 0:
                path = os.path.join(self._folder, f"instance-{index}.{stream[3:]}")
                handle = self._files[index, stream] = os.open(path, _FLAGS, 0o600)
            while data:
                data = data[os.write(handle, data) :]
        except OSError as error:
            self.close()
            return f"--log-dir: {self._folder}: {error.strerror}; nothing more is written there"
        return ""

    def close(self) -> None:
        """Close all files."""
        for handle in self._files.values():
            with contextlib.suppress(OSError):
                os.close(handle)
        self._files.clear()


def allow_open_files(count: int) -> None:
    """Allow this process, but no instance of it, this many more open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 128
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
