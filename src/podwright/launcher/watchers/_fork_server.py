"""A process that forks the keepers of later attempts (a fork server, as multiprocessing has one).

Once poprun has called a server by gRPC, threads of gRPC run in it, and gRPC starts them anew in
every forked child. A process with threads cannot make a user namespace (unshare(2)), and one that
has made a PID namespace cannot start a thread: nothing would contain its instances. So after the
first attempt, keepers are forked from a process that was started before and has no threads.

Requests come over a socket, since descriptors can be sent over it. The reply is a pid. The forked
process becomes a child of poprun, which has to be a subreaper. The fork server ends with poprun,
however poprun ends.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from podwright.errors import PodwrightError
from podwright.hosts import become_subreaper, end_with_parent, name_process, see_end

#: The work of a child: it gets the request and its own descriptors, and returns its exit code.
Work = Callable[[tuple[Any, ...], Sequence[int]], int]
_MOST = 1 << 16
_HANDLES = 16
#: Seconds for which poprun waits for its end; it may have been stopped.
_PATIENCE = 5.0


class ForkServerEnded(PodwrightError):
    """The fork server is gone, so no restart is possible."""

    exit_code = 128 + signal.SIGKILL


class ForkServer:
    """poprun's side of it. Make it before anything starts a thread."""

    def __init__(self, work: Work, close: Sequence[int] = ()) -> None:
        """close: descriptors that only poprun may keep."""
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

    def fork(self, arguments: tuple[Any, ...], handles: Sequence[int]) -> int:
        """Fork a child that does the work. Returns its pid. Raises ForkServerEnded."""
        pid = b""
        with contextlib.suppress(OSError):
            socket.send_fds(self._ours, [marshal.dumps(arguments)], handles)
            pid = self._ours.recv(_MOST)
        if not pid:
            raise ForkServerEnded(
                "poprun's fork server process, which starts instances anew, was ended",
                would_work="start the launch again",
            )
        return int(pid)

    def close(self) -> None:
        """Close the socket, and wait for the end of the process."""
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


def _fork(
    line: socket.socket, work: Work, arguments: tuple[Any, ...], handles: Sequence[int]
) -> None:
    """Fork once more. This process then ends, so the next subreaper adopts the child."""
    code = 1
    try:
        child = os.fork()
        if child:
            line.send(str(child).encode())
            code = 0
        else:
            line.close()
            code = work(arguments, handles)
    finally:
        os._exit(code)
