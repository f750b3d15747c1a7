"""Who holds a lease, in words: `train.py (process 4711 on node3)`.

The words are the holder's own; everybody reads them, in refusals and tables. Those who write them
this way are told apart by program, process and host in `gc-monitor`. Nothing is decided by them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Characters of the program's name; the server takes 200 in all.
_PROGRAM = 80
#: Compiled when it is needed: most commands never ask who holds something.
_WORDS = r"(?P<program>.*) \(process (?P<pid>\d{1,10}) on (?P<host>[\w.:%-]+)\)"


class Holder(NamedTuple):
    """What the words say. program: the words themselves, where they are not of that form."""

    program: str = ""
    pid: int = 0
    host: str = ""


def holder_words(program: str, pid: int, host: str) -> str:
    """The words for a process that is about to hold a lease. program: its name, no arguments:
    those may hold what is nobody's business."""
    name = "".join(letter if letter.isprintable() else "?" for letter in program)[:_PROGRAM]
    return f"{name or 'a program'} (process {pid} on {host[:100] or 'localhost'})"


def read_holder(words: str) -> Holder:
    """What a holder's words say."""
    found = re.fullmatch(_WORDS, words)
    if found is None:
        return Holder(words)
    return Holder(found["program"], int(found["pid"]), found["host"])
