"""Starting this user's own server in the background, where no other was found.

When several commands start at once, one of them starts the server and the others wait. A lock on a
file in the user's folder decides which one. The kernel releases the lock when its process ends, so
a killed command leaves none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from podwright.errors import Unavailable

COMMAND = (sys.executable, "-P", "-m", "podwright.cli.vipu_server", "--user")
START_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.02
_LOG_OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


def start_server(
    user_folder: str,
    environ: Mapping[str, str],
    is_ready: Callable[[], bool],
    *,
    command: Sequence[str] = COMMAND,
    timeout: float = START_TIMEOUT_S,
) -> bool:
    """Start `command` unless another process has done so, and wait until `is_ready`.

    Returns whether this call started it. user_folder: the user's private folder; it keeps the lock
    and `server.log`, the server's output. timeout: seconds. Raises Unavailable if the server ends
    or is not ready in time.

    The lock is held until the server is ready. A command that waited for the lock therefore finds
    the server ready at its first check, and does not start a second one.
    """
    deadline = time.monotonic() + timeout
    log_path = f"{user_folder}/server.log"
    with _hold_lock_file(f"{user_folder}/start.lock", deadline):
        if is_ready():
            return False
        pid = _spawn_server(command, environ, log_path)
        while not is_ready():
            if (exit_code := _exit_code(pid)) or time.monotonic() > deadline:
                if not exit_code:
                    _stop_server(pid)
                raise Unavailable(
                    "a server for this user was started, but "
                    f"{_failure_reason(exit_code, timeout, log_path)}",
                    would_work="start it by hand to see more (vipu-server --user), or name one "
                    "with --api-host",
                )
            time.sleep(_POLL_INTERVAL_S)
    return True


@contextlib.contextmanager
def _hold_lock_file(lock_path: str, deadline: float) -> Iterator[None]:
    lock_descriptor = os.open(
        lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        while True:
            try:
                fcntl.flock(lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another command is starting a server and does not end ({lock_path})",
                        would_work="try again, or name a server with --api-host",
                    ) from None
                time.sleep(_POLL_INTERVAL_S)
        yield
    finally:
        os.close(lock_descriptor)


def _spawn_server(command: Sequence[str], environ: Mapping[str, str], log_path: str) -> int:
    """Start the server in a session of its own, without this process's open files.

    Return its pid.
    """
    file_actions: list[tuple[int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log_path, _LOG_OPEN_FLAGS, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, log_path, os.O_WRONLY | os.O_APPEND, 0o600),
    ]
    # A pipe inherited from a script would stay open as long as the server lives, and the script
    # would wait for its end.
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with contextlib.suppress(OSError):
            if descriptor > 2 and os.get_inheritable(descriptor):
                file_actions.append((os.POSIX_SPAWN_CLOSE, descriptor))
    return os.posix_spawn(
        command[0], list(command), dict(environ), file_actions=file_actions, setsid=True
    )


def _exit_code(pid: int) -> int:
    """Return the exit code of a server that failed; 0 while it runs, or has detached itself."""
    try:
        reaped_pid, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if reaped_pid else 0


def _stop_server(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)


def _failure_reason(exit_code: int, timeout: float, log_path: str) -> str:
    if not exit_code:
        return f"did not answer within {timeout:g} s (its words are in {log_path})"
    try:
        with open(log_path, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
    except OSError:
        lines = []
    return f"ended at once with code {exit_code}: {lines[-1] if lines else 'it printed nothing'}"
