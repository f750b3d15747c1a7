"""The resident lint service: worker processes that answer questions at a Unix socket, one at a
time.

Scripts are untrusted text. The kernel ends a worker that needs more than two seconds or too much
memory for one script, and the service replaces it. slurmctld does not wait that long; it goes on
without an answer.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from podwright.gpu.lint import CachedSite
from podwright.gpu.submission._job_submit_question import answer

MAX_QUESTION_BYTES = 8 << 20  # bytes of a question; Slurm's own limit of a script is 4 MiB
_QUESTION_TIMEOUT_S = 2  # that a question may take
_WORKER_MEMORY_BYTES = 1 << 30  # bytes of a worker
_MAX_WAITING = 64  # questions that may wait
_SOCKET_CHECK_PERIOD_S = 2.0  # seconds between two checks whether the service still exists
_PEER_CREDENTIALS = struct.Struct("iII")
_WARM_UP_SCRIPT = (
    "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\nsrun torchrun --nnodes=2 train.py\n"
)
log = logging.getLogger(__name__)


def serve(
    socket_path: Path,
    site: CachedSite,
    allowed_uids: frozenset[int],
    *,
    workers: int = 2,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer until SIGTERM or SIGINT. allowed_uids: the uids that get answers.

    Raises OSError where the socket cannot be created.
    """
    listener = _listening_socket(socket_path)
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    worker_pids = {_start_worker(listener, site, allowed_uids) for _ in range(workers)}
    ready()
    try:
        while signal.sigwait(signals) == signal.SIGCHLD:
            for pid in _reap():
                worker_pids.discard(pid)
                worker_pids.add(_start_worker(listener, site, allowed_uids))
    finally:
        for pid in worker_pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        socket_path.unlink(missing_ok=True)


def _reap() -> list[int]:
    """Return the pids of the workers that have ended since the last call."""
    pids = []
    with suppress(ChildProcessError):
        while (status := os.waitpid(-1, os.WNOHANG))[0]:
            pids.append(status[0])
            code = os.waitstatus_to_exitcode(status[1])
            log.warning("a worker ended (%d): its script took too long, or too much", code)
    return pids


def _listening_socket(socket_path: Path) -> socket.socket:
    """Return the listening socket. It replaces a stale one at which no process answers any more."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    socket_path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe_socket:
        probe_socket.settimeout(1)
        try:
            probe_socket.connect(str(socket_path))
        except (FileNotFoundError, ConnectionRefusedError):
            socket_path.unlink(missing_ok=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(socket_path)) from None
        else:
            raise OSError(98, "another service answers here", str(socket_path))
    listener.bind(str(socket_path))
    os.chmod(socket_path, 0o666)  # _is_asker refuses all other users
    listener.listen(_MAX_WAITING)
    return listener


def _start_worker(listener: socket.socket, site: CachedSite, allowed_uids: frozenset[int]) -> int:
    parent_pid = os.getpid()
    pid = os.fork()
    if not pid:
        _run_worker(listener, site, allowed_uids, parent_pid)
    return pid


def _run_worker(
    listener: socket.socket, site: CachedSite, allowed_uids: frozenset[int], parent_pid: int
) -> NoReturn:
    """Run the loop of a worker. SIGALRM ends it in the middle of a script that takes too long."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    resource.setrlimit(resource.RLIMIT_AS, (_WORKER_MEMORY_BYTES, _WORKER_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer("\n\n" + _WARM_UP_SCRIPT, site)  # loads every module before the first question
        listener.settimeout(_SOCKET_CHECK_PERIOD_S)
        while os.getppid() == parent_pid:
            with suppress(TimeoutError):
                _serve_one(listener.accept()[0], site, allowed_uids)
    except BaseException:
        log.exception("a worker ends")
        time.sleep(_SOCKET_CHECK_PERIOD_S / 5)  # were it to go on like this
    finally:
        os._exit(1)


def _serve_one(connection: socket.socket, site: CachedSite, allowed_uids: frozenset[int]) -> None:
    signal.alarm(_QUESTION_TIMEOUT_S)
    with connection, suppress(OSError):
        if _is_asker(connection, allowed_uids):
            connection.settimeout(_QUESTION_TIMEOUT_S)
            connection.sendall(answer(_read_question(connection), site).encode("utf-8", "replace"))
    signal.alarm(0)


def _is_asker(connection: socket.socket, allowed_uids: frozenset[int]) -> bool:
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
    )
    return _PEER_CREDENTIALS.unpack(credentials)[1] in allowed_uids


def _read_question(connection: socket.socket) -> str:
    """Return the question, up to the end that the asker marks. Raises OSError for one that is too
    long.
    """
    chunks: list[bytes] = []
    count = 0
    while chunk := connection.recv(1 << 16):
        count += len(chunk)
        if count > MAX_QUESTION_BYTES:
            raise OSError("a question without an end")
        chunks.append(chunk)
    return b"".join(chunks).decode("utf-8", "surrogateescape")
