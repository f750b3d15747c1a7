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
from podwright.gpu.submission._question import answer

LARGEST = 8 << 20  # bytes of a question; Slurm's own limit of a script is 4 MiB
_SECONDS = 2  # that a question may take
_MEMORY = 1 << 30  # bytes of a worker
_WAITING = 64  # questions that may wait
_LOOK = 2.0  # seconds between two checks whether the service still exists
_CRED = struct.Struct("iII")
_WARM = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\nsrun torchrun --nnodes=2 train.py\n"
log = logging.getLogger(__name__)


def serve(
    path: Path,
    site: CachedSite,
    askers: frozenset[int],
    *,
    workers: int = 2,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer until SIGTERM or SIGINT. askers: the uids that get answers.

    Raises OSError where the socket cannot be created.
    """
    door = _listening_socket(path)
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    running = {_start(door, site, askers) for _ in range(workers)}
    ready()
    try:
        while signal.sigwait(signals) == signal.SIGCHLD:
            for pid in _reap():
                running.discard(pid)
                running.add(_start(door, site, askers))
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        path.unlink(missing_ok=True)


def _reap() -> list[int]:
    """Return the pids of the workers that have ended since the last call."""
    pids = []
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            pids.append(child[0])
            exit_code = os.waitstatus_to_exitcode(child[1])
            log.warning("a worker ended (%d): its script took too long, or too much", exit_code)
    return pids


def _listening_socket(path: Path) -> socket.socket:
    """Return the listening socket. It replaces a stale one at which no process answers any more."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(1)
        try:
            other.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        else:
            raise OSError(98, "another service answers here", str(path))
    door.bind(str(path))
    os.chmod(path, 0o666)  # _is_asker refuses all other users
    door.listen(_WAITING)
    return door


def _start(door: socket.socket, site: CachedSite, askers: frozenset[int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _work(door, site, askers, parent)
    return pid


def _work(door: socket.socket, site: CachedSite, askers: frozenset[int], parent: int) -> NoReturn:
    """Run the loop of a worker. SIGALRM ends it in the middle of a script that takes too long."""
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer("\n\n" + _WARM, site)  # loads every module before the first question
        door.settimeout(_LOOK)
        while os.getppid() == parent:
            with suppress(TimeoutError):
                _serve_one(door.accept()[0], site, askers)
    except BaseException:
        log.exception("a worker ends")
        time.sleep(_LOOK / 5)  # were it to go on like this
    finally:
        os._exit(1)


def _serve_one(connection: socket.socket, site: CachedSite, askers: frozenset[int]) -> None:
    signal.alarm(_SECONDS)
    with connection, suppress(OSError):
        if _is_asker(connection, askers):
            connection.settimeout(_SECONDS)
            connection.sendall(answer(_read(connection), site).encode("utf-8", "replace"))
    signal.alarm(0)


def _is_asker(connection: socket.socket, askers: frozenset[int]) -> bool:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size)
    return _CRED.unpack(raw)[1] in askers


def _read(connection: socket.socket) -> str:
    """Return the question, up to the end that the asker marks. Raises OSError for one that is too
    long.
    """
    parts: list[bytes] = []
    size = 0
    while part := connection.recv(1 << 16):
        size += len(part)
        if size > LARGEST:
            raise OSError("a question without an end")
        parts.append(part)
    return b"".join(parts).decode("utf-8", "surrogateescape")
