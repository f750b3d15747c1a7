"""Who holds a lease, in words: `train.py (process 4711 on node3)`.

The words are the holder's own, and everybody reads them, in refusals and tables. `gc-monitor`
splits words of this form into program, process and host. No decision depends on them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The most characters of the program's name. The server accepts 200 in all.
_PROGRAM = 80
#: Compiled on use, since most commands never show a holder.
_HOLDER_PATTERN = r"(?P<program>.*) \(process (?P<pid>\d{1,10}) on (?P<host>[\w.:%-]+)\)"


class Holder(NamedTuple):
    """The parts of the words. program: all words, where they are not of that form."""

    program: str = ""
    pid: int = 0
    host: str = ""


def holder_words(program_name: str, pid: int, host: str) -> str:
    """Return the words for a process that is about to hold a lease.

    program_name: its name without arguments, which may contain private values.
    """
    printable_name = "".join(
        character if character.isprintable() else "?" for character in program_name
    )[:_PROGRAM]
    return f"{printable_name or 'a program'} (process {pid} on {host[:100] or 'localhost'})"


def read_holder(holder_text: str) -> Holder:
    """Return the parts of a holder's words."""
    holder_match = re.fullmatch(_HOLDER_PATTERN, holder_text)
    if holder_match is None:
        return Holder(holder_text)
    return Holder(holder_match["program"], int(holder_match["pid"]), holder_match["host"])
