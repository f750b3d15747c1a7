"""The service's keeper: a process that may read slurmctld's state, and that outlives the service.

The service answers strangers, so it gives up root. Its keeper, which is forked before, stays root
(or the user that started the service). Every few seconds it copies the site's settings and state,
and sends them over a pipe. It reads no input from anybody. When the service ends, in whatever way,
the keeper removes the socket and the folder that was made for it, and ends. When the keeper ends,
the service ends too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from podwright.errors import PodwrightError
from podwright.hosts import peer_of
from podwright.slurm.site.blocking_commands import Ask
from podwright.slurm.twin_service._site_copy import (
    SiteCopy,
    copy_files,
    copy_state,
    send,
    stamp,
)

_log = logging.getLogger("podwright.twin")
_SETTINGS_CHECK_INTERVAL_S = 15.0  # seconds between two looks at the settings


@dataclass
class Keeper:
    """The service's handle on its keeper. copies: the stream of copies."""

    pid: int
    copies: IO[bytes]
    _end: int

    def close(self) -> None:
        """Let the keeper clean up, and return when it has ended."""
        os.close(self._end)
        with contextlib.suppress(OSError):
            self.copies.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start_keeper(
    ask: Ask,
    socket_path: Path,
    service_sockets: Sequence[socket.socket],
    *,
    interval: float,
    folder_is_ours: bool,
) -> Keeper:
    """Fork the keeper. This must happen before any thread runs.

    service_sockets: the service's sockets, which the keeper closes. interval: seconds between two
    copies of the state. folder_is_ours: whether the socket's folder is removed with the socket.
    """
    copies_read_fd, copies_write_fd = os.pipe()
    end_read_fd, end_write_fd = os.pipe()
    service_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(copies_read_fd)
        os.close(end_write_fd)
        for service_socket in service_sockets:
            service_socket.close()
        _send_copies(
            os.fdopen(copies_write_fd, "wb"),
            end_read_fd,
            _CopySource(ask, time.monotonic),
            interval,
        )
        _remove_stale_socket(socket_path, service=service_pid, folder_is_ours=folder_is_ours)
        os._exit(0)
    os.close(copies_write_fd)
    os.close(end_read_fd)
    return Keeper(pid, os.fdopen(copies_read_fd, "rb"), end_write_fd)


class _CopySource:
    """Makes copies of the site, one after the other. Each part is read again only where it has
    changed.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask, self._clock = ask, clock
        self._copy: SiteCopy | None = None
        self._stamp = stamp(Path("/nonexistent"))
        self._files_read_at = 0.0
        self._reported = ""

    def next(self) -> SiteCopy | None:
        """Return the newest copy, or None if there is none yet."""
        now = self._clock()
        site_copy = self._copy
        if site_copy is None or now >= self._files_read_at + _SETTINGS_CHECK_INTERVAL_S:
            try:
                fresh_copy = copy_files(self._ask)
            except PodwrightError as error:
                self._log_new_problem(error.problem)
                if site_copy is None:
                    return None
            else:
                self._files_read_at, self._reported = now, ""
                if site_copy is None or fresh_copy.folder != site_copy.folder:
                    self._stamp = stamp(Path("/nonexistent"))
                site_copy = _with_former_state(fresh_copy, site_copy)
        now_stamp = stamp(Path(site_copy.folder))
        if now_stamp != self._stamp or not now_stamp.files:
            site_copy = copy_state(site_copy, now)
            self._stamp = now_stamp
        elif site_copy.present:
            site_copy = _with_read_time(site_copy, now)
        self._copy = site_copy
        return site_copy

    def _log_new_problem(self, problem: str) -> None:
        if problem != self._reported:
            self._reported = problem
            _log.warning("the site cannot be read: %s", problem)


def _with_former_state(fresh_copy: SiteCopy, former_copy: SiteCopy | None) -> SiteCopy:
    if former_copy is None or former_copy.folder != fresh_copy.folder:
        return fresh_copy
    return replace(
        fresh_copy,
        present=former_copy.present,
        no_state=former_copy.no_state,
        read_at=former_copy.read_at,
    )


def _with_read_time(site_copy: SiteCopy, now: float) -> SiteCopy:
    """Return the copy with a new time: its state has not changed since it was read, so it is still
    the present one.
    """
    return replace(site_copy, read_at=now)


def _send_copies(
    copies_stream: IO[bytes], end_read_fd: int, copy_source: _CopySource, interval: float
) -> None:
    """Send copies until the service closes its ends of the pipes, or ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sent_copy: SiteCopy | None = None
    with contextlib.suppress(OSError):
        while True:
            try:
                site_copy = copy_source.next()
            except Exception:  # a copy that fails must not end the service
                _log.exception("the site cannot be copied")
                site_copy = None
            if site_copy is not None and site_copy != sent_copy:
                send(copies_stream, site_copy, sent_copy)
                sent_copy = site_copy
            if select.select([end_read_fd], [], [], interval)[0]:
                return


def _remove_stale_socket(socket_path: Path, *, service: int, folder_is_ours: bool) -> None:
    """Remove the socket unless another service answers at it. service: the process number of the
    service that has ended.

    The kernel closes the files of a killed process in no fixed order. The keeper may see the end of
    its pipe while the service's socket still takes connections, so a connection alone does not
    prove that another service has replaced the socket. The process that listens does.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(socket_path))
        except (FileNotFoundError, ConnectionRefusedError):
            pass
        except OSError:
            return
        else:
            if peer_of(probe).pid != service:
                return
    with contextlib.suppress(OSError):
        socket_path.unlink(missing_ok=True)
        if folder_is_ours:
            socket_path.parent.rmdir()
