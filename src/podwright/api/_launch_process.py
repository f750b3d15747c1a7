"""A launch that runs beside this program and ends with it (`_child`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from podwright.api._end_with_parent import hold
from podwright.errors import (
    InvalidRequest,
    LaunchFailed,
    PodwrightError,
    TimedOut,
    error_from_json,
)

CHILD = (sys.executable, "-P", "-m", "podwright.api._child")
#: The value of an option. True and False mean yes and no.
Option = bool | int | float | str


def described(exit_code: int) -> str:
    """Return an exit code of a launch in words."""
    if exit_code > 128:
        with contextlib.suppress(ValueError):
            return f"the launch was ended by {signal.Signals(exit_code - 128).name}"
    return f"the launch ended with code {exit_code}"


def option_words(options: Mapping[str, Option | None]) -> list[str]:
    """Return options as poprun's arguments: `max_restarts=2` becomes `--max-restarts=2`.

    An option that is None is left out. Raises InvalidRequest for an option that poprun does not
    have; the message names the nearest one.
    """
    from podwright.launcher import OPTIONS

    option_names = {option.field: option.name for option in OPTIONS}
    poprun_arguments = []
    for option_field, option_value in options.items():
        if option_value is None:
            continue
        if option_field not in option_names:
            import difflib

            nearest_fields = difflib.get_close_matches(option_field, option_names, n=1)
            raise InvalidRequest(
                f"there is no option {option_field!r}",
                would_work=f"the nearest is {nearest_fields[0]!r}"
                if nearest_fields
                else "poprun --help lists all",
            )
        value_text = (
            ("yes" if option_value else "no")
            if isinstance(option_value, bool)
            else str(option_value)
        )
        poprun_arguments.append(f"{option_names[option_field]}={value_text}")
    return poprun_arguments


class LaunchProcess:
    """One launch. Its output goes to the given files. `code` and `error` say how it ended."""

    def __init__(
        self,
        poprun_arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: str = "",
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        cwd: str | None = None,
    ) -> None:
        request_read_fd, request_write_fd = os.pipe()
        self._report, report_write_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*CHILD, str(request_read_fd), str(report_write_fd)],
                pass_fds=(request_read_fd, report_write_fd),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=dict(environ),
                cwd=cwd,
                process_group=0,  # Ctrl-C is passed on once, by this process
            )
        except BaseException:
            for pipe_fd in (request_write_fd, self._report):
                os.close(pipe_fd)
            raise
        finally:
            os.close(request_read_fd)
            os.close(report_write_fd)
        self._tether = os.fdopen(request_write_fd, "wb", buffering=0)
        hold(self._tether)
        with contextlib.suppress(BrokenPipeError):
            request_line = (
                json.dumps({"words": list(poprun_arguments), "folder": folder}).encode() + b"\n"
            )
            while request_line:
                request_line = request_line[self._tether.write(request_line) or 0 :]
        self._ending: dict[str, Any] = {}
        self.code: int | None = None
        self.error: PodwrightError | None = None

    @property
    def pid(self) -> int:
        """The pid of the launch's process."""
        return self._process.pid

    def done(self) -> bool:
        """Return whether the launch is over. Then `code` and `error` say how it ended."""
        if self.code is None and self._process.poll() is not None:
            self._read_ending()
        return self.code is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds. Return whether it has come."""
        if self.code is None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            self._read_ending()
        return True

    async def wait_async(self) -> None:
        """Wait without a thread. Cancelling this call ends only the waiting."""
        if self.done():
            return
        pid_fd = os.pidfd_open(self.pid)
        loop, exited = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(pid_fd, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(pid_fd)
            os.close(pid_fd)
        self.wait()

    def interrupt(self, signal_number: int = signal.SIGTERM) -> None:
        """Ask the launch to end. A second call asks it to end at once."""
        if not self.done():
            self._process.send_signal(signal_number)

    def wait_or_interrupt(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        On Ctrl-C, pass it on, wait for the orderly end, and raise KeyboardInterrupt.
        """
        try:
            return self.wait(timeout)
        except KeyboardInterrupt:
            self.interrupt(signal.SIGINT)
            try:
                self.wait()
            except KeyboardInterrupt:
                self.interrupt(signal.SIGINT)
                self.wait()
            raise

    def failure(self, log_end: str) -> PodwrightError:
        """Return why a launch that is over failed: the failed instance, or what else ended it.

        log_end: the end of its log. The error is `TimedOut` where the launch's own `timeout` ended
        it.
        """
        code = self.code or 1
        if self._ending.get("timed_out"):
            return TimedOut(self._ending["cause"], exit_code=code, log=log_end)
        instance = self._ending.get("instance", -1)
        failed_instance = {"instance": instance} if instance >= 0 else {}
        text = self._ending.get("cause") or described(code)
        return LaunchFailed(text, exit_code=code, log=log_end, **failed_instance)

    def _read_ending(self) -> None:
        report_bytes = b""
        report_poll = select.poll()
        report_poll.register(self._report, select.POLLIN)
        # Forks of the launch may have their copy of the pipe open for a moment more, so one line
        # is enough and the end of the file is not awaited.
        while (
            not report_bytes.endswith(b"\n")
            and report_poll.poll(0)
            and (chunk := os.read(self._report, 65536))
        ):
            report_bytes += chunk
        os.close(self._report)
        self._tether.close()
        return_code = self._process.returncode
        report_fields = json.loads(report_bytes) if report_bytes.endswith(b"\n") else {}
        self._ending = report_fields.get("ending", {})
        self.error = error_from_json(report_fields["error"]) if "error" in report_fields else None
        self.code = report_fields.get(
            "code", return_code if return_code >= 0 else 128 - return_code
        )
