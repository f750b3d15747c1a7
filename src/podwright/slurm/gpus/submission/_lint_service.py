"""The resident service: workers that take one question after the other at a Unix socket.

Scripts are strangers' text. A worker that needs more than two seconds for one, or too much memory,
is ended by the kernel and replaced, and slurmctld has long gone on without an answer.
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

from podwright.slurm.gpus.lint import CachedSite
from podwright.slurm.gpus.submission._question import answer

LARGEST = 8 << 20  # bytes of a question; Slurm's own limit of a script is 4 MiB
_SECONDS = 2  # that a question may take
_MEMORY = 1 << 30  # bytes of a worker
_WAITING = 64  # questions that may wait
_LOOK = 2.0  # seconds between two looks whether the service is still there
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
    """Answers until SIGTERM or SIGINT. askers: the uids that are answered.

    Raises OSError where the socket cannot be made.
    """
    door = _listening_socket(path)
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    running = {_start(door, site, askers) for _ in range(workers)}
    ready()
    try:
        while signal.sigwait(signals) == signal.SIGCHLD:
            for pid in _ended():
                running.discard(pid)
                running.add(_start(door, site, askers))
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        path.unlink(missing_ok=True)


def _ended() -> list[int]:
    """The workers that have ended since."""
    found = []
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended[0])
            why = os.waitstatus_to_exitcode(ended[1])
            log.warning("a worker ended (%d): its script took too long, or too much", why)
    return found


def _listening_socket(path: Path) -> socket.socket:
    """The socket, in place of one that nobody answers at any more."""
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
    os.chmod(path, 0o666)  # whoever is not asked for is sent away by _is_asker
    door.listen(_WAITING)
    return door


def _start(door: socket.socket, site: CachedSite, askers: frozenset[int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _work(door, site, askers, parent)
    return pid


def _work(door: socket.socket, site: CachedSite, askers: frozenset[int], parent: int) -> NoReturn:
    """A worker's life; SIGALRM ends it in the middle of a script that takes too long."""
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        answer("\n\n" + _WARM, site)  # whatever it loads, it loads now
        door.settimeout(_LOOK)
        while os.getppid() == parent:
            with suppress(TimeoutError):
                _serve_one(door.accept()[0], site, askers)
    except BaseException:
        log.exception("a worker ends")
        time.sleep(_LOOK / 5)  # were it to go on like this
    finally:
        os._exit(1)


def _serve_one(taken: socket.socket, site: CachedSite, askers: frozenset[int]) -> None:
    signal.alarm(_SECONDS)
    with taken, suppress(OSError):
        if _is_asker(taken, askers):
            taken.settimeout(_SECONDS)
            taken.sendall(answer(_read(taken), site).encode("utf-8", "replace"))
    signal.alarm(0)


def _is_asker(taken: socket.socket, askers: frozenset[int]) -> bool:
    raw = taken.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size)
    return _CRED.unpack(raw)[1] in askers


def _read(taken: socket.socket) -> str:
    """The question, up to where the asker ends it. Raises OSError for one that is too long."""
    parts: list[bytes] = []
    size = 0
    while part := taken.recv(1 << 16):
        size += len(part)
        if size > LARGEST:
            raise OSError("a question without an end")
        parts.append(part)
    return b"".join(parts).decode("utf-8", "surrogateescape")
