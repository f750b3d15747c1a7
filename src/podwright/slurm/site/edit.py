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

COMMENT_MARK: Final = "podwright"


def _comment_marks(mark: str) -> tuple[str, str, str]:
    """Return the mark before an old line, the mark after a line of ours, and the mark for a missing
    newline at the end.
    """
    return f"#{mark} was: ", f" #{mark}", f"#{mark}: this file ended without a newline"


OLD_LINE_MARK, OUR_LINE_MARK, _NO_NEWLINE_MARK = _comment_marks(COMMENT_MARK)
_SETTING_PATTERN: Final = re.compile(
    r"\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*(?:(?<!\\)#.*)?$", re.DOTALL
)


def _line_seal(line_body: str) -> str:
    return hashlib.sha256(line_body.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _marked_line(line_body: str, mark: str) -> str:
    """Return a line of ours. Only lines with the first mark have a seal."""
    return (
        f"{line_body} #{mark} {_line_seal(line_body)}\n"
        if mark == COMMENT_MARK
        else f"{line_body} #{mark}\n"
    )


def _setting_key(line: str) -> str:
    setting_match = _SETTING_PATTERN.match(line)
    return setting_match[1].lower() if setting_match and not line.lstrip().startswith("#") else ""


def changed(
    conf_text: str, wanted_settings: Mapping[str, str], source: str, mark: str = COMMENT_MARK
) -> str:
    """Return the file with these settings. Raises InvalidRequest for what cannot be edited
    safely.
    """
    old_prefix, own_mark, no_newline_mark = _comment_marks(mark)
    conf_text = undone(conf_text, mark, source)
    remaining_settings = {
        key.lower(): (key, setting_value) for key, setting_value in wanted_settings.items()
    }
    new_lines = []
    previous_line = ""
    for line in conf_text.splitlines(keepends=True):
        setting_match = _SETTING_PATTERN.match(line)
        setting_key = (
            setting_match[1].lower() if setting_match and not line.lstrip().startswith("#") else ""
        )
        if setting_key in remaining_settings and (
            line.rstrip().endswith("\\") or previous_line.rstrip().endswith("\\")
        ):
            raise InvalidRequest(
                f"{source}: {setting_match[1] if setting_match else setting_key} goes on over "
                "several lines",
                operation="change it",
                would_work="write it in one line, and run this again",
            )
        if setting_key in remaining_settings:
            setting_name, setting_value = remaining_settings.pop(setting_key)
            missing_newline = "" if line.endswith("\n") else "\n"
            new_lines += [
                old_prefix + line + missing_newline,
                _marked_line(f"{setting_name}={setting_value}", mark),
            ]
            if missing_newline:
                new_lines.append(no_newline_mark + own_mark + "\n")
        else:
            new_lines.append(line)
        previous_line = line
    if remaining_settings and new_lines and not new_lines[-1].endswith("\n"):
        new_lines += ["\n", no_newline_mark + own_mark + "\n"]
    new_lines += [
        _marked_line(f"{name}={setting_value}", mark)
        for name, setting_value in remaining_settings.values()
    ]
    return "".join(new_lines)


def append_own_line(conf_text: str, own_line: str, source: str = "the file") -> str:
    """Return the file with a line of ours at its end. Raises InvalidRequest as `undone` does."""
    conf_text = undone(conf_text, source=source)
    if conf_text and not conf_text.endswith("\n"):
        conf_text += "\n" + _NO_NEWLINE_MARK + OUR_LINE_MARK + "\n"
    return conf_text + _marked_line(own_line, COMMENT_MARK)


def comment_out(lines: Iterable[str], mark: str) -> list[str]:
    """Return lines as comments that `undone` turns back into the lines."""
    prefix, own_mark, no_newline_mark = _comment_marks(mark)
    comment_lines = []
    for line in lines:
        comment_lines += (
            [prefix + line]
            if line.endswith("\n")
            else [prefix + line + "\n", no_newline_mark + own_mark + "\n"]
        )
    return comment_lines


def undone(conf_text: str, mark: str = COMMENT_MARK, source: str = "the file") -> str:
    """Return the file without what is ours. Raises InvalidRequest for a line of ours that was
    edited.
    """
    old_prefix, own_mark, no_newline_mark = _comment_marks(mark)
    own_line_pattern = re.compile(re.escape(own_mark) + r"(?: ([0-9a-f]{8}))?\r?\n?$")
    conf_lines = conf_text.splitlines(keepends=True)
    kept_lines = []
    newline_was_missing = False
    for line_index, line in enumerate(conf_lines):
        if line.startswith(no_newline_mark):
            newline_was_missing = True
        elif line.startswith(old_prefix):
            old_line = line[len(old_prefix) :]
            # If the next line has no mark, it is the site's own, and this old one is dropped.
            next_line = conf_lines[line_index + 1] if line_index + 1 < len(conf_lines) else ""
            next_key = (
                mark == COMMENT_MARK
                and not own_line_pattern.search(next_line)
                and _setting_key(next_line)
            )
            if not (next_key and next_key == _setting_key(old_line)):
                kept_lines.append(old_line)
        elif mark_at_end := own_line_pattern.search(line):
            line_body = line[: mark_at_end.start()]
            if mark_at_end[1] and mark_at_end[1] != _line_seal(line_body):
                raise InvalidRequest(
                    f"{source}, line {line_index + 1} is Podwright's and was edited: "
                    f"{line_body.strip()[:200]}",
                    operation="change the file",
                    would_work="write there what the site wants without Podwright's words, and "
                    f"take `{mark_at_end[0].strip()}` off its end; then run this again",
                )
        else:
            kept_lines.append(line)
    if newline_was_missing and kept_lines and kept_lines[-1].endswith("\n"):
        kept_lines[-1] = kept_lines[-1][:-1]
    return "".join(kept_lines)


def joined(old_list: str, *new_words: str) -> str:
    """Return a comma-separated list with more words. Words that are there already stay as they
    are.
    """
    present_words = [word for word in old_list.split(",") if word]
    keys = {word.partition("=")[0].partition(":")[0].lower() for word in present_words}
    added_words = [
        word for word in new_words if word.partition("=")[0].partition(":")[0].lower() not in keys
    ]
    return ",".join([*present_words, *added_words])
