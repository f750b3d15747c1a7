"""Changes of slurm.conf and plugstack.conf that can be taken back byte for byte. Pure.

What is replaced stays in the file as a comment, and what is ours is marked, so taking it back
needs no copy of the file and leaves alone whatever else was changed meanwhile. Two set-ups may
stand in one file, each under a mark of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from podwright.wire import InvalidRequest

MARK: Final = "podwright"


def _marks(mark: str) -> tuple[str, str, str]:
    """Before what was there, after what is ours, and in place of a newline that was missing."""
    return f"#{mark} was: ", f" #{mark}", f"#{mark}: this file ended without a newline"


WAS, OURS, _CUT = _marks(MARK)
_SETTING: Final = re.compile(r"\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*(?:(?<!\\)#.*)?$", re.DOTALL)


def settings(text: str) -> dict[str, str]:
    """The settings of a file by lower-case key, one a line; those of nodes and so on left out."""
    found = {}
    for line in text.splitlines():
        said = _SETTING.match(line)
        if said and not line.lstrip().startswith("#"):
            found[said[1].lower()] = said[2]
    return found


def changed(text: str, wanted: Mapping[str, str], path: str, mark: str = MARK) -> str:
    """The file with these settings. Raises InvalidRequest for what cannot be edited safely."""
    was, ours, cut = _marks(mark)
    if was in text or ours + "\n" in text:
        text = undone(text, mark)
    left = {key.lower(): (key, value) for key, value in wanted.items()}
    out = []
    before = ""
    for line in text.splitlines(keepends=True):
        said = _SETTING.match(line)
        key = said[1].lower() if said and not line.lstrip().startswith("#") else ""
        if key in left and (line.rstrip().endswith("\\") or before.rstrip().endswith("\\")):
            raise InvalidRequest(
                f"{path}: {said[1] if said else key} goes on over several lines",
                asked="change it",
                would_work="write it in one line, and run this again",
            )
        if key in left:
            name, value = left.pop(key)
            end = "" if line.endswith("\n") else "\n"
            out += [was + line + end, f"{name}={value}{ours}\n"]
            if end:
                out.append(cut + ours + "\n")
        else:
            out.append(line)
        before = line
    if left and out and not out[-1].endswith("\n"):
        out += ["\n", cut + ours + "\n"]
    out += [f"{name}={value}{ours}\n" for name, value in left.values()]
    return "".join(out)


def with_line(text: str, line: str) -> str:
    """The file with a line of ours at its end."""
    text = undone(text)
    if text and not text.endswith("\n"):
        text += "\n" + _CUT + OURS + "\n"
    return text + f"{line}{OURS}\n"


def commented(lines: Iterable[str], mark: str) -> list[str]:
    """Lines as comments that `undone` turns back into what they were."""
    was, ours, cut = _marks(mark)
    out = []
    for line in lines:
        out += [was + line] if line.endswith("\n") else [was + line + "\n", cut + ours + "\n"]
    return out


def undone(text: str, mark: str = MARK) -> str:
    """The file without what is ours."""
    was, ours, start = _marks(mark)
    out = []
    cut = False
    for line in text.splitlines(keepends=True):
        if line.startswith(start):
            cut = True
        elif line.startswith(was):
            out.append(line[len(was) :])
        elif not line.endswith(ours + "\n"):
            out.append(line)
    if cut and out and out[-1].endswith("\n"):
        out[-1] = out[-1][:-1]
    return "".join(out)


def joined(old: str, *new: str) -> str:
    """A comma list with more in it; what is there already stays as it stands."""
    there = [word for word in old.split(",") if word]
    keys = {word.partition("=")[0].partition(":")[0].lower() for word in there}
    add = [w for w in new if w.partition("=")[0].partition(":")[0].lower() not in keys]
    return ",".join([*there, *add])
