"""The standard input of instance 0, which is poprun's.

Open MPI 5 passes the input on, but not its end (the closing is lost in PMIx), so a program that
reads to the end waits for ever. So mpirun gets no input. Instance 0 opens a named pipe of the run's
folder instead, and a process below the guardian copies poprun's input into it. All other instances
have an empty input.

If instance 0 runs on another host, mpirun passes the input on, without its end. An empty input is
closed there too.
"""

from __future__ import annotations

import os
import stat

from podwright.launcher.instances._run_folder import RunFolder

_STREAM = "in.0"
_COPY_SCRIPT = 'exec cat >"$0"'


def take_input(folder: RunFolder) -> list[str]:
    """Make the input of instance 0. Returns the command that copies this process's input into it.

    There is no command where there is nothing to copy: no input, an empty one, or a terminal, from
    which a process outside of its session cannot read.
    """
    if has_no_input():
        make_empty_input(folder)
        return []
    path = folder.stream(_STREAM)
    os.mkfifo(folder.local_path(path), 0o600)
    return ["/bin/sh", "-c", _COPY_SCRIPT, path]


def make_empty_input(folder: RunFolder) -> None:
    """Give instance 0 an input that has ended."""
    os.symlink(os.devnull, folder.local_path(folder.stream(_STREAM)))


def has_no_input() -> bool:
    """Return whether this process has no input that instances could read."""
    try:
        standard_input = os.fstat(0)
    except OSError:
        return True
    is_null = stat.S_ISCHR(standard_input.st_mode) and (
        standard_input.st_rdev == os.stat(os.devnull).st_rdev
    )
    return is_null or os.isatty(0)
