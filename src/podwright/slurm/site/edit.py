"""Changes of slurm.conf and plugstack.conf that can be taken back byte for byte. Pure.

What is replaced stays in the file as a comment, and what is ours is marked, so taking it back
needs no copy of the file and leaves alone whatever else was changed meanwhile. A line of ours is
sealed: one that the site has edited since is named and refused, never overwritten. Where the site
takes the mark off, the line is its own. Two set-ups may stand in one file, each under its mark.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from podwright.errors import InvalidRequest

MARK: Final = "podwright"


def _marks(mark: str) -> tuple[str, str, str]:
    """Before what was there, after what is ours, and in place of a newline that was missing."""
    return f"#{mark} was: ", f" #{mark}", f"#{mark}: this file ended without a newline"


WAS, OURS, _CUT = _marks(MARK)
_SETTING: Final = re.compile(r"\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*(?:(?<!\\)#.*)?$", re.DOTALL)


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _sealed(body: str, mark: str) -> str:
    """A line of ours. Only the first mark has a seal."""
    return f"{body} #{mark} {_seal(body)}\n" if mark == MARK else f"{body} #{mark}\n"


def _key(line: str) -> str:
    said = _SETTING.match(line)
    return said[1].lower() if said and not line.lstrip().startswith("#") else ""


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
    text = undone(text, mark, path)
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
            out += [was + line + end, _sealed(f"{name}={value}", mark)]
            if end:
                out.append(cut + ours + "\n")
        else:
            out.append(line)
        before = line
    if left and out and not out[-1].endswith("\n"):
        out += ["\n", cut + ours + "\n"]
    out += [_sealed(f"{name}={value}", mark) for name, value in left.values()]
    return "".join(out)


def with_line(text: str, line: str, path: str = "the file") -> str:
    """The file with a line of ours at its end. Raises InvalidRequest as `undone` does."""
    text = undone(text, path=path)
    if text and not text.endswith("\n"):
        text += "\n" + _CUT + OURS + "\n"
    return text + _sealed(line, MARK)


def commented(lines: Iterable[str], mark: str) -> list[str]:
    """Lines as comments that `undone` turns back into what they were."""
    was, ours, cut = _marks(mark)
    out = []
    for line in lines:
        out += [was + line] if line.endswith("\n") else [was + line + "\n", cut + ours + "\n"]
    return out


def undone(text: str, mark: str = MARK, path: str = "the file") -> str:
    """The file without what is ours. Raises InvalidRequest for a line of ours that was edited."""
    was, ours, start = _marks(mark)
    sealed = re.compile(re.escape(ours) + r"(?: ([0-9a-f]{8}))?\r?\n?$")
    lines = text.splitlines(keepends=True)
    out = []
    cut = False
    for at, line in enumerate(lines):
        if line.startswith(start):
            cut = True
        elif line.startswith(was):
            before = line[len(was) :]
            # Without the mark the next line is the site's own, and this one is past.
            after = lines[at + 1] if at + 1 < len(lines) else ""
            own = mark == MARK and not sealed.search(after) and _key(after)
            if not (own and own == _key(before)):
                out.append(before)
        elif found := sealed.search(line):
            body = line[: found.start()]
            if found[1] and found[1] != _seal(body):
                raise InvalidRequest(
                    f"{path}, line {at + 1} is Podwright's and was edited: {body.strip()[:200]}",
                    asked="change the file",
                    would_work="write there what the site wants without Podwright's words, and "
                    f"take `{found[0].strip()}` off its end; then run this again",
                )
        else:
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
