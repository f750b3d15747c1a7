"""What instances write, kept in a file for each (`--log-dir`), without tags."""

from __future__ import annotations

import contextlib
import os
import resource

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Logs:
    """The files `instance-N.log` in a folder: both streams, line by line, as they came.

    What is there stays, and new lines are added: a job that starts again keeps its history.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[int, int] = {}

    def add(self, index: int, lines: bytes) -> str:
        """Write whole lines of an instance; what went wrong, if anything: then write no more."""
        try:
            handle = self._files.get(index, -1)
            if handle < 0:
                path = os.path.join(self._folder, f"instance-{index}.log")
                handle = self._files[index] = os.open(path, _FLAGS, 0o600)
            while lines:
                lines = lines[os.write(handle, lines) :]
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
    """Let this process, and no instance of it, have so many files open beside the usual ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 128
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
