"""The pipes into which the instances of one host write, read by poprun there or by its relay."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Collection, Mapping

from podwright.launcher.instances._folder import RunFolder
from podwright.launcher.instances._instance_wrapper import open_stream

_CHUNK = 65536


class InstancePipes:
    """Reads the streams of a host's instances. Reads never block.

    ranks: the instances. numbers: the streams of each by their names (`_exchange.streams`). wrote:
    takes an instance, the number of a stream, and bytes. on_end: takes the instance and the number
    of a stream whose last writer has closed it.

    The pipes are opened before any instance starts. A pipe that nobody has opened for writing yet
    cannot be told from one that all writers have closed: both read as ended. So `read` reads only
    what epoll reports, which reports the end of a pipe only after it had a writer. The other two
    methods read without asking. They are for an instance that has ended, and for the end of all.
    """

    def __init__(
        self,
        folder: RunFolder,
        ranks: Collection[int],
        numbers: Mapping[str, int],
        wrote: Callable[[int, int, bytes], None],
        on_end: Callable[[int, int], None] = lambda rank, number: None,
    ) -> None:
        self._wrote, self._on_end = wrote, on_end
        self._ready = select.epoll()
        #: The open pipes: the instance of each, and the number of the stream.
        self._pipes: dict[int, tuple[int, int]] = {}
        for rank in ranks:
            for name, number in numbers.items():
                handle = open_stream(folder, f"{name}.{rank}")
                self._pipes[handle] = rank, number
                self._ready.register(handle, select.EPOLLIN)

    @property
    def handle(self) -> int:
        """Readable when an instance has written, or closed a stream."""
        return self._ready.fileno()

    def read(self) -> None:
        """Read once from every pipe that is ready."""
        for handle, _ in self._ready.poll(0):
            if handle in self._pipes:
                self._read(handle)

    def read_rest(self, rank: int, number: int) -> None:
        """Read all that an instance, which has ended, wrote into a stream."""
        for handle in [h for h, stream in self._pipes.items() if stream == (rank, number)]:
            while self._read(handle):
                pass

    def close(
        self, written: Callable[[], None] = lambda: None, *, unread: Collection[int] = ()
    ) -> None:
        """Read the rest of all pipes, and close them. No instance is left.

        written: is called after each piece, so that a slow reader takes it before the next. unread:
        the numbers of streams that are closed without reading.
        """
        for handle, (_, number) in list(self._pipes.items()):
            while number not in unread and self._read(handle):
                written()
            if handle in self._pipes:
                self._close(handle)
        self._ready.close()

    def _read(self, handle: int) -> bool:
        """Read once. Return whether there was anything."""
        rank, number = self._pipes[handle]
        try:
            data = os.read(handle, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._wrote(rank, number, data)
            return True
        self._on_end(rank, number)
        self._close(handle)
        return False

    def _close(self, handle: int) -> None:
        self._ready.unregister(handle)
        os.close(handle)
        del self._pipes[handle]
