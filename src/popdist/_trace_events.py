"""What an instance reports for `poprun --trace`: its collectives, its marks, and when it joined.

poprun names a pipe in POPDIST_TRACE and reads it. Without that variable nothing is recorded and
nothing is loaded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popdist._trace_records import Records

#: The environment variable of an instance that names the pipe for its records.
TRACE_VARIABLE = "POPDIST_TRACE"


def mark(name: str) -> None:
    """Put a mark with this name into the trace of the launch, at the present time: `mark("epoch")`.

    Nothing happens where poprun does not trace. A name has at most 80 bytes. Use few different
    names: marks with the same name are counted together. The function is ours, not PopDist's.

    >>> popdist.mark("epoch")
    """
    records = open_records()
    if records is not None:
        records.mark(name)


class _Opened:
    """The records of this process; None where poprun does not trace."""

    done = False
    records: Records | None = None


def open_records() -> Records | None:
    """Return the records of this process, or None where poprun does not trace."""
    if not _Opened.done:
        _open_pipe()
    return _Opened.records


def _open_pipe() -> None:
    _Opened.done = True
    path = os.environ.get(TRACE_VARIABLE)
    if not path:
        return
    import atexit

    from popdist._trace_records import Records

    try:
        pipe_fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # nobody reads the pipe; the program goes on without a trace
    records = _Opened.records = Records(pipe_fd)
    atexit.register(records.flush)
    os.register_at_fork(after_in_child=records.forget)
