"""A launch that runs beside this program, and ends with it (`_child`)."""

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
from podwright.errors import InvalidRequest, PodwrightError, error_from_json

CHILD = (sys.executable, "-P", "-m", "podwright.api._child")
#: An option's value: True and False are yes and no.
Option = bool | int | float | str


def option_words(options: Mapping[str, Option | None]) -> list[str]:
    """Options as poprun's words: `max_restarts=2` is `--max-restarts=2`; None is left out.

    Raises InvalidRequest for one that poprun does not have, naming the nearest.
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
    """One launch. Its output goes where it was told; how it ended is `code` and `error`."""

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
                process_group=0,  # Ctrl-C is passed on once, and by us
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
        self.code: int | None = None
        self.error: PodwrightError | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def done(self) -> bool:
        """Whether it is over; then `code` and `error` say how."""
        if self.code is None and self._process.poll() is not None:
            self._finish()
        return self.code is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; whether it came in time."""
        if self.code is None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            self._finish()
        return True

    async def wait_async(self) -> None:
        """The same without a thread. Cancelling this only ends the waiting."""
        if self.done():
            return
        handle = os.pidfd_open(self.pid)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        self.wait()

    def interrupt(self, number: int = signal.SIGTERM) -> None:
        """Ask it to end; a second time, to end at once."""
        if not self.done():
            self._process.send_signal(number)

    def wait_or_interrupt(self, timeout: float | None = None) -> bool:
        """Wait; Ctrl-C is passed on, the orderly end seen, and KeyboardInterrupt raised then."""
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

    def _finish(self) -> None:
        said = b""
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        # Forks of the launch may have its end open for a moment more: a line is enough.
        while not said.endswith(b"\n") and poll.poll(0) and (chunk := os.read(self._report, 65536)):
            said += chunk
        os.close(self._report)
        self._tether.close()
        returned = self._process.returncode
        told = json.loads(said) if said.endswith(b"\n") else {}
        self.error = error_from_json(told["error"]) if "error" in told else None
        self.code = told.get("code", returned if returned >= 0 else 128 - returned)
