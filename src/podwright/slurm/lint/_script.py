"""A job script as lint sees it: directives, assignments and commands, each with its line.

Not a shell: it knows comments, continued lines, here-documents and quotes well enough to find
what concerns Slurm, and says nothing about what it does not understand.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from podwright.slurm.requests import (
    Given,
    Request,
    invalid_type,
    parse_options,
    read_request,
)

if TYPE_CHECKING:
    from podwright.wire import InvalidRequest

_ASSIGN = re.compile(r"^\s*(?:export\s+|declare\s+-x\s+)?([A-Z][A-Z0-9_]*)=(.*)$")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass(frozen=True)
class Line:
    """One logical line (continued lines joined): its first number from 1, and its text."""

    number: int
    text: str
    last: int


@dataclass
class Script:
    """What was found. `broken` are directives that Slurm cannot read."""

    lines: list[str]
    directives: list[tuple[int, Given]] = field(default_factory=list)
    broken: list[tuple[int, InvalidRequest]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    assignments: list[tuple[int, str, str]] = field(default_factory=list)
    commands: list[Line] = field(default_factory=list)
    request: Request = field(default_factory=lambda: Request("sbatch"))

    def line_of(self, *options: str) -> int:
        """The line of the last of these options, 0 where none was given."""
        found = [number for number, given in self.directives if given.name in options]
        return found[-1] if found else 0

    def assigned(self, name: str) -> tuple[int, str] | None:
        """(line, value) of the last assignment to a variable."""
        found = [(number, value) for number, key, value in self.assignments if key == name]
        return found[-1] if found else None

    def uses(self, *words: str) -> Line | None:
        """The first command that contains one of these patterns."""
        pattern = re.compile("|".join(words))
        return next((line for line in self.commands if pattern.search(line.text)), None)


def _logical(lines: list[str]) -> list[Line]:
    """Lines with their continuations joined, here-documents left out."""
    joined: list[Line] = []
    index, end = 0, ""
    while index < len(lines):
        first, text = index, lines[index]
        index += 1
        if end:
            if text.strip() == end:
                end = ""
            continue
        while text.rstrip().endswith("\\") and index < len(lines) and not text.startswith("#"):
            text = text.rstrip()[:-1] + " " + lines[index].strip()
            index += 1
        here = _HEREDOC.search(text)
        if here and not text.lstrip().startswith("#"):
            end = here[2]
        joined.append(Line(first + 1, text, index))
    return joined


def without_comment(text: str) -> str:
    """The line without its comment: a # at its start or after a blank, outside quotes."""
    quote = ""
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (position == 0 or text[position - 1].isspace()):
            return text[:position].rstrip()
    return text.rstrip()


def words_of(text: str) -> list[str]:
    """The words of a line as a shell would split them, or by blanks where quotes do not close."""
    try:
        return shlex.split(text, comments=False)
    except ValueError:
        return text.split()


def read_script(text: str) -> Script:
    """The script; whatever Slurm cannot read in it ends up in `broken`, never raises."""
    script = Script(text.splitlines())
    started = False
    for line in _logical(script.lines):
        if line.text.startswith("#SBATCH"):
            if started:
                script.late.append(line.number)
            else:
                _directive(script, line)
            continue
        code = without_comment(line.text).strip()
        if not code:
            continue
        started = True
        assignment = _ASSIGN.match(code)
        if assignment:
            script.assignments.append((line.number, assignment[1], assignment[2].strip()))
        if not assignment or " " in assignment[2].strip().replace("$(", ""):
            script.commands.append(Line(line.number, code, line.last))
    try:
        script.request = read_request([given for _, given in script.directives], "sbatch")
    except invalid_type():
        script.request = _what_can_be_read(script)
    return script


def _directive(script: Script, line: Line) -> None:
    words = words_of(without_comment(" " + line.text.removeprefix("#SBATCH")).strip())
    try:
        given, _ = parse_options(words, "sbatch")
    except invalid_type() as error:
        script.broken.append((line.number, error))
        return
    for one in given:
        script.directives.append((line.number, one))


def _what_can_be_read(script: Script) -> Request:
    """The request without the directives whose values Slurm cannot read; those are broken."""
    kept: list[Given] = []
    for number, given in list(script.directives):
        try:
            read_request([given], "sbatch")
        except invalid_type() as error:
            script.broken.append((number, error))
        else:
            kept.append(given)
    return read_request(kept, "sbatch")
