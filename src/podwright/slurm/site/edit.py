"""Changes of slurm.conf and plugstack.conf that can be undone byte for byte. Pure.

A line that is replaced stays in the file as a comment, and each line of ours is marked. So undoing
needs no copy of the file, and leaves alone whatever else was changed meanwhile. A line of ours
carries a seal, which is a hash of it. A line of ours that the site has edited since is named and
refused, and never overwritten. Where the site removes the mark, the line is the site's own. Two
set-ups may be in one file, each under its own mark.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from podwright.errors import InvalidRequest

MARK: Final = "podwright"


def _marks(mark: str) -> tuple[str, str, str]:
    """Return the mark before an old line, the mark after a line of ours, and the mark for a missing
    newline at the end.
    """
    return f"#{mark} was: ", f" #{mark}", f"#{mark}: this file ended without a newline"


WAS, OURS, _CUT = _marks(MARK)
_SETTING: Final = re.compile(r"\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*(?:(?<!\\)#.*)?$", re.DOTALL)


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _sealed(body: str, mark: str) -> str:
    """Return a line of ours. Only lines with the first mark have a seal."""
    return f"{body} #{mark} {_seal(body)}\n" if mark == MARK else f"{body} #{mark}\n"


def _key(line: str) -> str:
    match = _SETTING.match(line)
    return match[1].lower() if match and not line.lstrip().startswith("#") else ""


def settings(text: str) -> dict[str, str]:
    """Return the settings of a file by lower-case key, one on each line. Lines of nodes and the
    like are left out.
    """
    values = {}
    for line in text.splitlines():
        match = _SETTING.match(line)
        if match and not line.lstrip().startswith("#"):
            values[match[1].lower()] = match[2]
    return values


def changed(text: str, wanted: Mapping[str, str], source: str, mark: str = MARK) -> str:
    """Return the file with these settings. Raises InvalidRequest for what cannot be edited
    safely.
    """
    old_prefix, ours, cut = _marks(mark)
    text = undone(text, mark, source)
    left = {key.lower(): (key, value) for key, value in wanted.items()}
    out = []
    before = ""
    for line in text.splitlines(keepends=True):
        match = _SETTING.match(line)
        key = match[1].lower() if match and not line.lstrip().startswith("#") else ""
        if key in left and (line.rstrip().endswith("\\") or before.rstrip().endswith("\\")):
            raise InvalidRequest(
                f"{source}: {match[1] if match else key} goes on over several lines",
                operation="change it",
                would_work="write it in one line, and run this again",
            )
        if key in left:
            name, value = left.pop(key)
            end = "" if line.endswith("\n") else "\n"
            out += [old_prefix + line + end, _sealed(f"{name}={value}", mark)]
            if end:
                out.append(cut + ours + "\n")
        else:
            out.append(line)
        before = line
    if left and out and not out[-1].endswith("\n"):
        out += ["\n", cut + ours + "\n"]
    out += [_sealed(f"{name}={value}", mark) for name, value in left.values()]
    return "".join(out)


def with_line(text: str, line: str, source: str = "the file") -> str:
    """Return the file with a line of ours at its end. Raises InvalidRequest as `undone` does."""
    text = undone(text, source=source)
    if text and not text.endswith("\n"):
        text += "\n" + _CUT + OURS + "\n"
    return text + _sealed(line, MARK)


def commented(lines: Iterable[str], mark: str) -> list[str]:
    """Return lines as comments that `undone` turns back into the lines."""
    old_prefix, ours, cut = _marks(mark)
    out = []
    for line in lines:
        out += (
            [old_prefix + line]
            if line.endswith("\n")
            else [old_prefix + line + "\n", cut + ours + "\n"]
        )
    return out


def undone(text: str, mark: str = MARK, source: str = "the file") -> str:
    """Return the file without what is ours. Raises InvalidRequest for a line of ours that was
    edited.
    """
    old_prefix, ours, start = _marks(mark)
    sealed = re.compile(re.escape(ours) + r"(?: ([0-9a-f]{8}))?\r?\n?$")
    lines = text.splitlines(keepends=True)
    out = []
    cut = False
    for i, line in enumerate(lines):
        if line.startswith(start):
            cut = True
        elif line.startswith(old_prefix):
            before = line[len(old_prefix) :]
            # If the next line has no mark, it is the site's own, and this old one is dropped.
            after = lines[i + 1] if i + 1 < len(lines) else ""
            own = mark == MARK and not sealed.search(after) and _key(after)
            if not (own and own == _key(before)):
                out.append(before)
        elif mark_at_end := sealed.search(line):
            body = line[: mark_at_end.start()]
            if mark_at_end[1] and mark_at_end[1] != _seal(body):
                raise InvalidRequest(
                    f"{source}, line {i + 1} is Podwright's and was edited: {body.strip()[:200]}",
                    operation="change the file",
                    would_work="write there what the site wants without Podwright's words, and "
                    f"take `{mark_at_end[0].strip()}` off its end; then run this again",
                )
        else:
            out.append(line)
    if cut and out and out[-1].endswith("\n"):
        out[-1] = out[-1][:-1]
    return "".join(out)


def joined(old: str, *new: str) -> str:
    """Return a comma-separated list with more words. Words that are there already stay as they
    are.
    """
    present = [word for word in old.split(",") if word]
    keys = {word.partition("=")[0].partition(":")[0].lower() for word in present}
    add = [word for word in new if word.partition("=")[0].partition(":")[0].lower() not in keys]
    return ",".join([*present, *add])
