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
import socket
from collections.abc import Callable, Sequence
from typing import Any

from podwright.errors import PodwrightError
from podwright.hosts import become_subreaper, end_with_parent, name_process, see_end
from podwright.launcher.instances._exit_cause import TRY_AGAIN

#: The work of a child: it gets the request and its own descriptors, and returns its exit code.
Work = Callable[[tuple[Any, ...], Sequence[int]], int]
_MAX_REQUEST_BYTES = 1 << 16
_MAX_HANDLES = 16
#: Seconds for which poprun waits for its end; it may have been stopped.
_SERVER_END_PATIENCE_S = 5.0


class ForkServerEnded(PodwrightError):
    """The fork server is gone, so no restart is possible."""

    exit_code = TRY_AGAIN


class ForkServer:
    """poprun's side of it. Make it before anything starts a thread."""

    def __init__(self, work: Work, close_handles: Sequence[int] = ()) -> None:
        """close_handles: descriptors that only poprun may keep."""
        become_subreaper()
        self._ours, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        poprun_pid = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            exit_code = 1
            try:
                for handle in (self.handle, *close_handles):
                    os.close(handle)
                os.setsid()
                name_process("podwright-fork")
                end_with_parent(poprun_pid)
                exit_code = _serve_fork_requests(server_socket, work)
            finally:
                os._exit(exit_code)
        server_socket.close()

    @property
    def handle(self) -> int:
        """A descriptor that no child should keep."""
        return self._ours.fileno()

    def fork(self, arguments: tuple[Any, ...], handles: Sequence[int]) -> int:
        """Fork a child that does the work. Returns its pid. Raises ForkServerEnded."""
        reply = b""
        with contextlib.suppress(OSError):
            socket.send_fds(self._ours, [marshal.dumps(arguments)], handles)
            reply = self._ours.recv(_MAX_REQUEST_BYTES)
        if not reply:
            raise ForkServerEnded(
                "poprun's fork server process, which starts instances anew, was ended",
                would_work="start the launch again",
            )
        return int(reply)

    def close(self) -> None:
        """Close the socket, and wait for the end of the process."""
        self._ours.close()
        see_end(self._pid, _SERVER_END_PATIENCE_S)


def _serve_fork_requests(server_socket: socket.socket, work: Work) -> int:
    while True:
        request, handles, _, _ = socket.recv_fds(
            server_socket, _MAX_REQUEST_BYTES, _MAX_HANDLES, socket.MSG_CMSG_CLOEXEC
        )
        if not request:
            return 0
        pid = os.fork()
        if not pid:
            _fork_orphan(server_socket, work, marshal.loads(request), handles)
        for handle in handles:
            os.close(handle)
        os.waitpid(pid, 0)


def _fork_orphan(
    server_socket: socket.socket, work: Work, arguments: tuple[Any, ...], handles: Sequence[int]
) -> None:
    """Fork once more. This process then ends, so the next subreaper adopts the child."""
    code = 1
    try:
        pid = os.fork()
        if pid:
            server_socket.send(str(pid).encode())
            code = 0
        else:
            server_socket.close()
            code = work(arguments, handles)
    finally:
        os._exit(code)
