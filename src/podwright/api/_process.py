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

from podwright.api._tether import hold
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


def described(code: int) -> str:
    """Return an exit code of a launch in words."""
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"the launch was ended by {signal.Signals(code - 128).name}"
    return f"the launch ended with code {code}"


def option_words(options: Mapping[str, Option | None]) -> list[str]:
    """Return options as poprun's arguments: `max_restarts=2` becomes `--max-restarts=2`.

    An option that is None is left out. Raises InvalidRequest for an option that poprun does not
    have; the message names the nearest one.
    """
    from podwright.launcher import OPTIONS

    known = {option.field: option.name for option in OPTIONS}
    words = []
    for name, value in options.items():
        if value is None:
            continue
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            raise InvalidRequest(
                f"there is no option {name!r}",
                would_work=f"the nearest is {close[0]!r}" if close else "poprun --help lists all",
            )
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        words.append(f"{known[name]}={text}")
    return words


class LaunchProcess:
    """One launch. Its output goes to the given files. `code` and `error` say how it ended."""

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: str = "",
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        cwd: str | None = None,
    ) -> None:
        request, asking = os.pipe()
        self._report, report = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*CHILD, str(request), str(report)],
                pass_fds=(request, report),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=dict(environ),
                cwd=cwd,
                process_group=0,  # Ctrl-C is passed on once, by this process
            )
        except BaseException:
            for handle in (asking, self._report):
                os.close(handle)
            raise
        finally:
            os.close(request)
            os.close(report)
        self._tether = os.fdopen(asking, "wb", buffering=0)
        hold(self._tether)
        with contextlib.suppress(BrokenPipeError):
            line = json.dumps({"words": list(words), "folder": folder}).encode() + b"\n"
            while line:
                line = line[self._tether.write(line) or 0 :]
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
            self._finish()
        return self.code is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most `timeout` seconds. Return whether it has come."""
        if self.code is None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            self._finish()
        return True

    async def wait_async(self) -> None:
        """Wait without a thread. Cancelling this call ends only the waiting."""
        if self.done():
            return
        handle = os.pidfd_open(self.pid)
        loop, exited = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        self.wait()

    def interrupt(self, number: int = signal.SIGTERM) -> None:
        """Ask the launch to end. A second call asks it to end at once."""
        if not self.done():
            self._process.send_signal(number)

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

    def failure(self, log: str) -> PodwrightError:
        """Return why a launch that is over failed: the failed instance, or what else ended it.

        log: the end of its log. The error is `TimedOut` where the launch's own `timeout` ended it.
        """
        code = self.code or 1
        if self._ending.get("timed_out"):
            return TimedOut(self._ending["cause"], exit_code=code, log=log)
        instance = self._ending.get("instance", -1)
        who = {"instance": instance} if instance >= 0 else {}
        text = self._ending.get("cause") or described(code)
        return LaunchFailed(text, exit_code=code, log=log, **who)

    def _finish(self) -> None:
        output = b""
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        # Forks of the launch may have their copy of the pipe open for a moment more, so one line
        # is enough and the end of the file is not awaited.
        while (
            not output.endswith(b"\n") and poll.poll(0) and (chunk := os.read(self._report, 65536))
        ):
            output += chunk
        os.close(self._report)
        self._tether.close()
        returned = self._process.returncode
        outcome = json.loads(output) if output.endswith(b"\n") else {}
        self._ending = outcome.get("ending", {})
        self.error = error_from_json(outcome["error"]) if "error" in outcome else None
        self.code = outcome.get("code", returned if returned >= 0 else 128 - returned)
