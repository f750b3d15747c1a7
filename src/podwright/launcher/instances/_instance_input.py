"""The standard input of instance 0, which is poprun's.

Open MPI 5 passes the input on, but not its end (the closing is lost in PMIx), so a program that
reads to the end waits for ever. So mpirun gets no input. Instance 0 opens a named pipe of the run's
folder instead, and a process below the guardian copies poprun's input into it. All other instances
have an empty input.

If instance 0 runs on another host, poprun reads that pipe and sends what it reads to the relay
there (InputSource), which writes it into a pipe of its own (InputSink). At most _MOST_ON_THE_WAY
bytes are on their way, so an instance that does not read makes nobody keep more.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

from podwright.launcher.instances._run_folder import RunFolder

#: The number of the stream on a line between hosts, beside those of _function_exchange.
INPUT_STREAM = 4
_MOST_ON_THE_WAY = 256 << 10
_READ_CHUNK_BYTES = 65536
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


class InputSource:
    """Reads what `take_input`'s command copies, for instance 0 on another host.

    send: takes the bytes that were read, and none at the end. handle: negative once it has ended.
    """

    def __init__(self, folder: RunFolder, send: Callable[[bytes], None]) -> None:
        path = folder.local_path(folder.stream(_STREAM))
        self.handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._send, self._on_the_way = send, 0

    @property
    def wanted(self) -> bool:
        """Whether to read as soon as `handle` is ready."""
        return self.handle >= 0 and self._on_the_way < _MOST_ON_THE_WAY

    def read(self) -> None:
        """Read once and send. Call it only if `handle` is ready: before its writer has come, the
        pipe reads as ended.
        """
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self.handle, _READ_CHUNK_BYTES)
            self._send(chunk)
            self._on_the_way += len(chunk)
            if not chunk:
                self.close()

    def free(self, byte_count: int) -> None:
        """The instance's pipe has taken so many bytes."""
        self._on_the_way -= byte_count

    def close(self) -> None:
        """Read no more."""
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1


class InputSink:
    """Writes the input of instance 0 into its pipe, on the relay's host. Writes never block.

    The pipe is open for reading here too, so nothing that is written before the instance opens it
    is lost. It is closed at the end of the input, but not before the instance has opened it.
    """

    def __init__(self, folder: RunFolder) -> None:
        path = folder.local_path(folder.stream(_STREAM))
        os.mkfifo(path, 0o600)
        self.handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._data, self._is_complete, self._opened = b"", False, False

    @property
    def waiting(self) -> bool:
        """Whether bytes wait for room in the pipe."""
        return self.handle >= 0 and bool(self._data)

    def add(self, data: bytes) -> int:
        """Take more input, or its end (no bytes). Returns what `pump` does."""
        self._data += data
        self._is_complete = self._is_complete or not data
        return self.pump()

    def instance_started(self) -> int:
        """The instance has opened the pipe. Returns what `pump` does."""
        self._opened = True
        return self.pump()

    def pump(self) -> int:
        """Write what the pipe takes now. Returns the number of bytes."""
        if self.handle < 0:
            return 0
        written = 0
        with contextlib.suppress(BlockingIOError):
            while written < len(self._data):
                written += os.write(self.handle, self._data[written : written + _READ_CHUNK_BYTES])
        self._data = self._data[written:]
        if self._is_complete and self._opened and not self._data:
            os.close(self.handle)
            self.handle = -1
        return written
