"""The pipes into which the instances of one host write, read by poprun there or by its relay."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Collection, Mapping

from podwright.launcher.instances._instance_wrapper import open_stream
from podwright.launcher.instances._run_folder import RunFolder

_READ_CHUNK_BYTES = 65536


class InstancePipes:
    """Reads the streams of a host's instances. Reads never block.

    ranks: the instances. stream_numbers: the streams of each by their names (`_exchange.streams`).
    on_data: takes an instance, the number of a stream, and bytes. on_end: takes the instance and
    the number of a stream whose last writer has closed it.

    The pipes are opened before any instance starts. A pipe that nobody has opened for writing yet
    cannot be told from one that all writers have closed: both read as ended. So `read` reads only
    what epoll reports, which reports the end of a pipe only after it had a writer. The other two
    methods read without asking. They are for an instance that has ended, and for the end of all.
    """

    def __init__(
        self,
        folder: RunFolder,
        ranks: Collection[int],
        stream_numbers: Mapping[str, int],
        on_data: Callable[[int, int, bytes], None],
        on_end: Callable[[int, int], None] = lambda rank, stream_number: None,
    ) -> None:
        self._on_data, self._on_end = on_data, on_end
        self._ready = select.epoll()
        #: The open pipes: the instance of each, and the number of the stream.
        self._pipes: dict[int, tuple[int, int]] = {}
        for rank in ranks:
            for name, stream_number in stream_numbers.items():
                descriptor = open_stream(folder, f"{name}.{rank}")
                self._pipes[descriptor] = rank, stream_number
                self._ready.register(descriptor, select.EPOLLIN)

    @property
    def handle(self) -> int:
        """Readable when an instance has written, or closed a stream."""
        return self._ready.fileno()

    def read(self) -> None:
        """Read once from every pipe that is ready."""
        for descriptor, _ in self._ready.poll(0):
            if descriptor in self._pipes:
                self._read_pipe_once(descriptor)

    def read_rest(self, rank: int, stream_number: int) -> None:
        """Read all that an instance, which has ended, wrote into a stream."""
        for pipe_descriptor in [
            descriptor
            for descriptor, stream in self._pipes.items()
            if stream == (rank, stream_number)
        ]:
            while self._read_pipe_once(pipe_descriptor):
                pass

    def close(
        self, on_piece: Callable[[], None] = lambda: None, *, unread: Collection[int] = ()
    ) -> None:
        """Read the rest of all pipes, and close them. No instance is left.

        on_piece: is called after each piece, so that a slow reader takes it before the next.
        unread: the numbers of streams that are closed without reading.
        """
        for descriptor, (_, number) in list(self._pipes.items()):
            while number not in unread and self._read_pipe_once(descriptor):
                on_piece()
            if descriptor in self._pipes:
                self._close_pipe(descriptor)
        self._ready.close()

    def _read_pipe_once(self, pipe_descriptor: int) -> bool:
        """Read once. Return whether there was anything."""
        rank, number = self._pipes[pipe_descriptor]
        try:
            data = os.read(pipe_descriptor, _READ_CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._on_data(rank, number, data)
            return True
        self._on_end(rank, number)
        self._close_pipe(pipe_descriptor)
        return False

    def _close_pipe(self, pipe_descriptor: int) -> None:
        self._ready.unregister(pipe_descriptor)
        os.close(pipe_descriptor)
        del self._pipes[pipe_descriptor]
