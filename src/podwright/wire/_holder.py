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
_WORDS = r"(?P<program>.*) \(process (?P<pid>\d{1,10}) on (?P<host>[\w.:%-]+)\)"


class Holder(NamedTuple):
    """The parts of the words. program: all words, where they are not of that form."""

    program: str = ""
    pid: int = 0
    host: str = ""


def holder_words(program: str, pid: int, host: str) -> str:
    """Return the words for a process that is about to hold a lease.

    program: its name without arguments, which may contain private values.
    """
    name = "".join(letter if letter.isprintable() else "?" for letter in program)[:_PROGRAM]
    return f"{name or 'a program'} (process {pid} on {host[:100] or 'localhost'})"


def read_holder(words: str) -> Holder:
    """Return the parts of a holder's words."""
    match = re.fullmatch(_WORDS, words)
    if match is None:
        return Holder(words)
    return Holder(match["program"], int(match["pid"]), match["host"])
