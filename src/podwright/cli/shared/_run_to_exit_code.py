"""The ending of every command: turns a result or an error into a line and an exit code.

It is apart from the arguments, since argparse costs 4 ms, and poprun parses by itself. `run` is the
one place that does this, so no command ever shows a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from podwright.cli.shared._terminal import fit_locale

if TYPE_CHECKING:
    from podwright.errors import PodwrightError

EXIT_UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h: a package is not installed
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_OUTPUT = 74  # EX_IOERR
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
TRACEBACK = "PODWRIGHT_TRACEBACK"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run(
    body: Callable[[], int],
    *,
    prog: str,
    describe: Callable[[PodwrightError], str] | None = None,
) -> int:
    """Run a command's body and turn every way in which it can end into a line and an exit code.

    describe: returns the text of a refusal; without it `PROG: MESSAGE`.
    """
    fit_locale()
    try:
        try:
            return body()
        finally:
            if sys.stdout:  # None when it was closed before the start
                sys.stdout.flush()  # here a closed pipe or a full disk gets its message
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_standard_output()
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            _silence_standard_output()
            complain(f"{prog}: cannot write the output: {(error.strerror or '').lower()}")
            return EXIT_OUTPUT
        return _explain(error, prog, describe)


def leave(code: int) -> NoReturn:
    """End the process here. Python's own exit takes 10 ms to free what the kernel frees anyway."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _explain(error: Exception, prog: str, describe: Callable[[PodwrightError], str] | None) -> int:
    from podwright.errors import (
        PodwrightError,  # only now: the import costs 40 ms that `--help` need not pay
    )

    if os.environ.get(TRACEBACK):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, PodwrightError):
        named = error.message.startswith(f"{prog} ")  # a verb that says its own name
        text = error.message if named else f"{prog}: {error.message}"
        complain(describe(error) if describe else text)
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("podwright"):
        if (error.name or "").partition(".")[0] in sys.stdlib_module_names:
            library = os.path.dirname(os.__file__)
            complain(
                f"{prog}: Python cannot load its own module {error.name}. "
                f"See whether this user may read {library}."
            )
            return EXIT_UNAVAILABLE
        from podwright.ground.pods_extra import install_command

        complain(f"{prog}: {error.name} is not installed. This brings it: {install_command()}")
        return EXIT_UNAVAILABLE
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    complain(f"{prog}: this is a fault of {prog} itself: {reason}. {TRACEBACK}=1 shows where.")
    return EXIT_INTERNAL


def complain(line: str) -> None:
    """Print a line on standard error. Ignore the error when nobody can read it any more."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        return


def _silence_standard_output() -> None:
    """Redirect standard output, which Python flushes once more at its end and which would fail
    again.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
