"""The process on this host that carries the connection to another one: ssh, srun, or a call."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence

from podwright.launcher.instances._exit_cause import described

_STDERR_LIMIT_BYTES = 8192
#: Seconds that the process has to end once the connection over it is closed.
_END_WAIT_S = 0.5
#: Seconds from SIGKILL to its end.
_KILLED = 5.0


class ConnectionProcess:
    """A running ssh or srun. Raises OSError when it cannot be started.

    argv: its command, beginning with its path. reading, writing: descriptors of its standard output
    and input, which the caller owns. It is in a process group of its own, so Ctrl-C does not reach
    it, and none of its three streams is shared with this process.

    Its exit status is read once. This process also reaps all children at times (`reap`), and may do
    so first. Then the status is lost, and the process counts as ended with 0.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self.program = os.path.basename(argv[0])
        #: Why the other end closes the connection, once it has said so.
        self.explanation = ""
        child_stdin, self.writing = os.pipe()
        self.reading, child_stdout = os.pipe()
        self._errors, child_stderr = os.pipe()
        os.set_blocking(self._errors, False)
        self._stderr, self._errors_ended = b"", False
        dup2_action = os.POSIX_SPAWN_DUP2
        try:
            self._pid = os.posix_spawn(
                argv[0],
                list(argv),
                dict(environ),
                file_actions=[
                    (dup2_action, child_stdin, 0),
                    (dup2_action, child_stdout, 1),
                    (dup2_action, child_stderr, 2),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
            )
        except OSError:
            for pipe_fd in (self.reading, self.writing, self._errors):
                os.close(pipe_fd)
            raise
        finally:
            for pipe_fd in (child_stdin, child_stdout, child_stderr):
                os.close(pipe_fd)

    @property
    def errors(self) -> int:
        """The descriptor of its standard error; negative once nobody can write there any more."""
        return -1 if self._errors_ended else self._errors

    def read_errors(self) -> None:
        """Read what it wrote to standard error. A login script that writes much would wait."""
        with contextlib.suppress(OSError):
            while chunk := os.read(self._errors, _STDERR_LIMIT_BYTES):
                self._stderr = (self._stderr + chunk)[-_STDERR_LIMIT_BYTES:]
            self._errors_ended = True

    def stderr_text(self) -> str:
        """Return the end of what it wrote to standard error."""
        self.read_errors()
        return self._stderr.decode(errors="replace")

    def forget_stderr(self) -> None:
        """Forget what it wrote until now: it explains nothing any more."""
        self._stderr = b""

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, negative for a signal. None: it does not end in this time."""
        deadline = time.monotonic() + seconds
        while self._pid:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # reaped with the others
                self._pid = 0
                break
            if pid:
                self._pid = 0
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.005)
        return 0

    def reason(self) -> str:
        """Return why the connection closed: what the other end said, the last line on standard
        error, or how it ended.
        """
        if self.explanation:
            return self.explanation
        code = self.wait(_END_WAIT_S)
        if code is not None and code < 0:
            return f"its {self.program} {described(128 - code)}"
        stderr_lines = [line for line in self.stderr_text().splitlines() if line.strip()]
        if stderr_lines:
            return stderr_lines[-1].strip()[:300]
        return "its relay process was ended, or the connection to it was cut"

    def close(self, seconds: float) -> None:
        """Wait for its end, and kill it after `seconds`. The connection is closed already."""
        if self._errors < 0:
            return
        if self.wait(seconds) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self.wait(_KILLED)
        os.close(self._errors)
        self._errors = -1
