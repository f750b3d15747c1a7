"""poprun's own output: two sinks, or one if both lead to the same place, and its messages.

If standard output and standard error are one terminal, their lines go through one buffer, so that
none breaks into another.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Mapping

from podwright.launcher.instances._streams import Sink


class Output:
    """Standard output and standard error of poprun. out, err: file descriptors."""

    def __init__(
        self,
        out: int = 1,
        err: int = 2,
        verbosity: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        plain = _is_plain(os.environ if environ is None else environ)
        self.out = _sink(out, plain)
        self.err = self.out if _same(out, err) else _sink(err, plain)
        self.verbosity = verbosity

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The different ones."""
        return (self.out,) if self.err is self.out else (self.out, self.err)

    def write_line(self, text: str) -> None:
        """Write a line of poprun's own to standard error."""
        self.err.add(text.encode(errors="surrogateescape") + b"\n")

    def error(self, text: str) -> None:
        """Write an error."""
        self.write_line(f"POPRUN ERROR: {text}")

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.write_line(f"POPRUN WARNING: {text}")

    def log(self, level: str, text: str) -> None:
        """Write a line of the log, in PopRun's form. Level I is shown with -v, D with -vv."""
        if self.verbosity >= {"I": 1, "D": 2}[level]:
            now = time.time()
            clock = time.strftime("%H:%M:%S", time.localtime(now))
            for line in text.splitlines():
                self.write_line(
                    f"{clock}.{int(now * 1000) % 1000:03} {os.getpid()} POPRUN [{level}] {line}"
                )

    def flush(self) -> None:
        """Write everything, however long it takes."""
        for sink in self.sinks:
            while sink.size and not sink.broken:
                poll = select.poll()
                poll.register(sink.handle, select.POLLOUT)
                poll.poll()
                sink.pump()


def _is_plain(environ: Mapping[str, str]) -> bool:
    """Return whether the user wants no colours (no-color.org), or has a terminal without them."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM", "dumb") == "dumb"


def _sink(handle: int, plain: bool) -> Sink:
    try:
        slow = not stat.S_ISREG(os.fstat(handle).st_mode)
    except OSError:
        slow = True
    return Sink(handle, slow=slow, colour=not plain and os.isatty(handle))


def _same(first: int, second: int) -> bool:
    try:
        a, b = os.fstat(first), os.fstat(second)
    except OSError:
        return False
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) and not stat.S_ISREG(a.st_mode)
