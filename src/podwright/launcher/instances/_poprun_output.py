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

from podwright.launcher.instances._tagged_output import Sink


class Output:
    """Standard output and standard error of poprun. out_descriptor, err_descriptor: file
    descriptors.
    """

    def __init__(
        self,
        out_descriptor: int = 1,
        err_descriptor: int = 2,
        verbosity: int = 0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        has_no_colours = _lacks_colours(os.environ if environ is None else environ)
        self.out = _make_sink(out_descriptor, has_no_colours)
        self.err = (
            self.out
            if _is_same_file(out_descriptor, err_descriptor)
            else _make_sink(err_descriptor, has_no_colours)
        )
        self.verbosity = verbosity

    @property
    def distinct_sinks(self) -> tuple[Sink, ...]:
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
            wall_time = time.time()
            clock_text = time.strftime("%H:%M:%S", time.localtime(wall_time))
            for line in text.splitlines():
                self.write_line(
                    f"{clock_text}.{int(wall_time * 1000) % 1000:03} {os.getpid()} POPRUN "
                    f"[{level}] {line}"
                )

    def flush(self) -> None:
        """Write everything, however long it takes."""
        for sink in self.distinct_sinks:
            while sink.size and not sink.broken:
                poll = select.poll()
                poll.register(sink.handle, select.POLLOUT)
                poll.poll()
                sink.pump()


def _lacks_colours(environ: Mapping[str, str]) -> bool:
    """Return whether the user wants no colours (no-color.org), or has a terminal without them."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM", "dumb") == "dumb"


def _make_sink(file_descriptor: int, has_no_colours: bool) -> Sink:
    try:
        is_slow = not stat.S_ISREG(os.fstat(file_descriptor).st_mode)
    except OSError:
        is_slow = True
    return Sink(
        file_descriptor,
        is_slow=is_slow,
        has_colour=not has_no_colours and os.isatty(file_descriptor),
    )


def _is_same_file(first_descriptor: int, second_descriptor: int) -> bool:
    try:
        first_stat, second_stat = os.fstat(first_descriptor), os.fstat(second_descriptor)
    except OSError:
        return False
    return (first_stat.st_dev, first_stat.st_ino) == (
        second_stat.st_dev,
        second_stat.st_ino,
    ) and not stat.S_ISREG(first_stat.st_mode)
