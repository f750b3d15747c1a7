"""Logs of what instances write, byte for byte, in two files for each (`--log-dir`)."""

from __future__ import annotations

import contextlib
import os
import resource

_LOG_OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Logs:
    """The files `instance-N.out` and `instance-N.err` in a folder: standard output and error.

    New output is appended, so a job that starts again keeps its history.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: dict[tuple[int, str], int] = {}

    def add(self, index: int, stream_name: str, data: bytes) -> str:
        """Write an instance's output. stream_name: `stdout` or `stderr`.

        Returns what went wrong; empty if nothing did. After an error, write no more.
        """
        try:
            file_descriptor = self._files.get((index, stream_name), -1)
            if file_descriptor < 0:
                log_path = os.path.join(self._folder, f"instance-{index}.{stream_name[3:]}")
                file_descriptor = self._files[index, stream_name] = os.open(
                    log_path, _LOG_OPEN_FLAGS, 0o600
                )
            while data:
                data = data[os.write(file_descriptor, data) :]
        except OSError as error:
            self.close()
            return f"--log-dir: {self._folder}: {error.strerror}; nothing more is written there"
        return ""

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._files.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._files.clear()


def allow_open_files(more_files: int) -> None:
    """Allow this process, but no instance of it, this many more open files."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted_limit = more_files + 128
    if soft_limit != resource.RLIM_INFINITY and soft_limit < wanted_limit:
        new_limit = (
            wanted_limit if hard_limit == resource.RLIM_INFINITY else min(wanted_limit, hard_limit)
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft_limit, new_limit), hard_limit))
