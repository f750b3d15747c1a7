"""A process that forks the keepers of later attempts (a fork server, as multiprocessing has one).

Once poprun has asked a server by gRPC, threads of gRPC run in it, and gRPC starts them anew in
whatever is forked from it. A process with threads makes no user namespace (unshare(2)), and one
that has made a PID namespace starts no thread: its instances would be held by nothing. So what is
forked after the first attempt is forked from a process that was there before, and has no threads.

It is asked over a socket, since descriptors travel there: a pid is the answer. What it forks is
poprun's child, who has to be a subreaper. It ends with poprun, however poprun ends.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from podwright.errors import Unavailable
from podwright.hosts import become_subreaper, end_with_parent, name_process, see_end

#: What a child does: it gets what was asked and its own descriptors, and returns its exit code.
Work = Callable[[tuple[Any, ...], Sequence[int]], int]
_MOST = 1 << 16
_HANDLES = 16
#: Seconds that it is waited for at the end; it may have been stopped.
_PATIENCE = 5.0


class ForkServer:
    """poprun's side of it. Make it before anything starts a thread."""

    def __init__(self, work: Work, close: Sequence[int] = ()) -> None:
        """close: descriptors that are poprun's alone."""
        become_subreaper()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            code = 1
            try:
                for handle in (self.handle, *close):
                    os.close(handle)
                os.setsid()
                name_process("podwright-fork")
                end_with_parent(parent)
                code = _serve(theirs, work)
            finally:
                os._exit(code)
        theirs.close()

    @property
    def handle(self) -> int:
        """A descriptor that no child should keep."""
        return self._ours.fileno()

    def fork(self, asked: tuple[Any, ...], handles: Sequence[int]) -> int:
        """Fork a child that does the work; its pid. Raises Unavailable if the server is gone."""
        said = b""
        with contextlib.suppress(OSError):
            socket.send_fds(self._ours, [marshal.dumps(asked)], handles)
            said = self._ours.recv(_MOST)
        if not said:
            raise Unavailable(
                "the process that starts instances anew was ended",
                would_work="start the launch again",
            )
        return int(said)

    def close(self) -> None:
        """See it to its end."""
        self._ours.close()
        see_end(self._pid, _PATIENCE)


def _serve(line: socket.socket, work: Work) -> int:
    while True:
        data, handles, _, _ = socket.recv_fds(line, _MOST, _HANDLES, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return 0
        middle = os.fork()
        if not middle:
            _fork(line, work, marshal.loads(data), handles)
        for handle in handles:
            os.close(handle)
        os.waitpid(middle, 0)


def _fork(line: socket.socket, work: Work, asked: tuple[Any, ...], handles: Sequence[int]) -> None:
    """In the middle: when it is gone, the child is that of the next subreaper."""
    code = 1
    try:
        child = os.fork()
        if child:
            line.send(str(child).encode())
            code = 0
        else:
            line.close()
            code = work(asked, handles)
    finally:
        os._exit(code)
