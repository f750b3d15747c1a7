"""The #SBATCH lines as sbatch reads them: one list of words over all lines, with where each stood.

sbatch's own rules (src/sbatch/opt.c): a line counts if it begins with the seven letters, reading
ends at the first line that is neither blank nor a comment, a # ends the line even within a word,
and the words of all lines together are its arguments, so that a value may be taken from the next.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.gpus.lint._option_values import problem_of_value
from podwright.slurm.gpus.requests import (
    Given,
    SlurmOption,
    known,
    parse_options,
    read_request,
)

MAGIC = "#SBATCH"
# A first line that lost its #, or #!: sbatch refuses the script for it, and for nothing below it.
LOST_SHEBANG = re.compile(r"\s*!?\s*/\S*/(env\s+\S*|(ba|z|k|da)?sh)\b")
# What a template has where a value is to come.
_LEFT_OPEN = re.compile(
    r"<[^<>=]*>|\{\{|\{%|\[[A-Za-z_ ]{3,}\]|%%\w+%%|__[A-Z_]+__|X{3}\w+X{3}|@\w+@"
    r"|(?<!\$)\{[^{}$]*\}|![A-Z]{2,}_\w+|FIXME|TODO|CHANGE_?ME|\?\?|HH:MM|DD-HH|\.\.\.|\u2026"
    r"|[-=:\s][XxNM]+(?=\s*$|\s+#)|=X+[A-Z]?\b|%\(\w+\)[sdif]|\$\{\{|%[A-Z][A-Z_]{2,}%"
    r"|\b(?i:your[-_]\w+|placeholder|replace[-_]?me|to[-_]be[-_]\w+)|=_{2,}|[=:]\s*$"
)
_TO_COME = re.compile(r"\s*(\{\{.*\}\}|\{%.*%\}|@\w+@|<[A-Z_]+>)\s*$")  # a template's own line
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_BLANKS = " \t\n\v\f\r"  # of the C library: a web page's blank (U+00A0) is a letter to it
# Such a blank where one word should end: before an option, or at an end of the word.
ODD_BLANK = re.compile(
    r"^[\u00a0\u2002-\u200b\u202f\ufeff]+|[\u00a0\u2002-\u200b\u202f\ufeff]+(?=-|$)"
)
_FAR = 3  # changed letters from which on a word is no misspelling


class Directive(NamedTuple):
    """One option: its line from 1, and what was given."""

    line: int
    given: Given


class Problem(NamedTuple):
    """What sbatch cannot read. `kind` is the rule's name, `near` the option that may be meant."""

    kind: str
    line: int
    word: str
    reason: str
    near: str = ""


class Directives:
    """All of them. `parts` are those of a het job, `first_command` the line where reading ends,
    `open` names the options whose values a template leaves open."""

    def __init__(self) -> None:
        self.given: list[Directive] = []
        self.problems: list[Problem] = []
        self.unknown: list[Problem] = []
        self.first_command = 0
        self.parts = 1
        self.open: set[str] = set()


def _names(line: str) -> set[str]:
    """The options that a line names, as far as it can be read."""
    short = {option.short: name for name, option in known("sbatch").items() if option.short}
    words = re.findall(r"\s(--[\w-]+|-\w)", line)
    return {word[2:] if word.startswith("--") else short.get(word[1], "") for word in words}


def left_open(line: str) -> bool:
    """Whether a template leaves something of this line to be filled in."""
    said = MAGIC + line.removeprefix(MAGIC).partition("#")[0]
    return bool(_LEFT_OPEN.search(said)) or "FIXME" in line


def waits_for_value(line: str) -> bool:
    """Whether a line above the first command, that one included, is a template's."""
    return bool(_TO_COME.match(line)) or (line.startswith(MAGIC) and left_open(line))


def words_of(line: str) -> list[str] | None:
    """The words behind #SBATCH as sbatch cuts them; None where a quote is not closed."""
    words: list[str] = []
    word: list[str] | None = None
    quote, escaped = "", False
    for letter in line:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
            continue
        elif quote:
            if letter == quote:
                quote = ""
                continue
        elif letter in "'\"":
            quote = letter
            word = word or []
            continue
        elif letter == "#":
            break
        elif letter in _BLANKS:
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        word = [*(word or []), letter]
    if quote:
        return None
    if word is not None:
        words.append("".join(word))
    return words


def read_directives(lines: list[str]) -> Directives:
    """Everything that stands before the first command."""
    found = Directives()
    words: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            if number == 1 and LOST_SHEBANG.match(line):
                continue
            if line.strip() and not line.lstrip().startswith("#") and not _TO_COME.match(line):
                found.first_command = number
                break
            continue
        if not line.startswith(MAGIC):
            continue
        if left_open(line):
            found.open |= _names(line)
            continue
        cut = words_of(line[len(MAGIC) :])
        if cut is None:
            reason = "a quote is not closed: sbatch refuses the script"
            found.problems.append(Problem("bad-value", number, line, reason))
        elif cut and cut[0].lower() in ("hetjob", "packjob"):
            found.parts += 1
            words += [(number, word) for word in cut[1:]]
        else:
            words += [(number, word) for word in cut]
    _read(words, found)
    return found


def _read(words: list[tuple[int, str]], found: Directives) -> None:
    table = known("sbatch")
    at = 0
    while at < len(words):
        line, word = words[at]
        at += 1
        if ODD_BLANK.search(word):
            reason = "a blank as web pages have it, which is a letter to sbatch"
            found.problems.append(Problem("typographic-dash", line, word, reason))
        elif word[:1] in _DASHES:
            reason = f"{word[0]!r} is a typographic dash, no hyphen: sbatch refuses the script"
            found.problems.append(Problem("typographic-dash", line, word, reason))
        elif word == "--" or not word.startswith("-") or word == "-":
            reason = f"{word!r} belongs to no option: sbatch refuses the script"
            if line not in {one.line for one in found.problems}:
                found.problems.append(Problem("stray-word", line, word, reason))
        elif word.startswith("--") and not _is_known(word, table):
            found.unknown.append(_unknown(line, word, table))
            while at < len(words) and words[at][0] == line and not words[at][1].startswith("-"):
                at += 1
        else:
            after = words[at] if at < len(words) else None
            at += _option(line, word, after, found)


def _is_known(word: str, table: dict[str, SlurmOption]) -> bool:
    name = word[2:].partition("=")[0]
    return name in table or sum(key.startswith(name) for key in table) == 1


def _is_option(word: str) -> bool:
    """Whether it reads as an option of its own, and not as a value."""
    return (
        word.startswith("-")
        and not word[1:2].isdigit()
        and (not word.startswith("--") or _is_known(word, known("sbatch")))
    )


def _option(line: int, word: str, after: tuple[int, str] | None, found: Directives) -> int:
    """Read one option; the count of words behind it that belong to it."""
    taken = 0
    try:
        try:
            given, _ = parse_options([word], "sbatch")
        except InvalidRequest as error:
            if after is None or "needs a value" not in error.problem:
                raise
            given, _ = parse_options([word, after[1]], "sbatch")
            taken = 1
            if after[0] != line and _is_option(after[1]):
                reason = f"{word} has no value: sbatch takes {after[1]} of line {after[0]} for it"
                found.problems.append(Problem("bad-value", line, word, reason))
                return 0
    except InvalidRequest as error:
        kind = "bad-value" if "value" in error.problem else "unknown-option"
        near = f"-{word}" if _is_known(f"-{word}", known("sbatch")) else ""
        found.problems.append(Problem(kind, line, word, error.problem, near))
        return taken
    spaced = taken and after and after[1].startswith("=")
    spaced = spaced or (
        word.endswith("=") and after and after[0] == line and after[1][:1] not in ("-", "")
    )
    if spaced:
        reason = "blanks around =: sbatch takes them as ends of words, and refuses the script"
        found.problems.append(Problem("blanks-around-equals", line, word, reason))
        bare = not taken or (after is not None and after[1] == "=")
        return taken + bare
    for one in given:
        problem = _value_problem(one)
        if problem:
            near = f"-{word}" if _is_known(f"-{word}", known("sbatch")) else ""
            found.problems.append(Problem("bad-value", line, one.text, problem, near))
        else:
            found.given.append(Directive(line, one))
    return taken


def _value_problem(given: Given) -> str:
    if "$" in given.value:
        return ""  # a rule of its own
    if given.name == "nodes" and re.fullmatch(r"[\d,:kKmM-]+", given.value) and "," in given.value:
        return ""  # a list of sizes, as newer releases have it
    try:
        read_request([given], "sbatch")
    except InvalidRequest as error:
        return error.problem
    return problem_of_value(given)


def _unknown(line: int, word: str, table: dict[str, SlurmOption]) -> Problem:
    import difflib

    name = word[2:].partition("=")[0]
    near = ""
    close = difflib.get_close_matches(name.lower().replace("_", "-"), list(table), 1, 0.8)
    if close and _distance(name, close[0]) < _FAR and len(name) >= _FAR + 1:
        near = f"--{close[0]}"
    return Problem("unknown-option", line, word, f"sbatch has no option --{name}", near)


def _distance(one: str, other: str) -> int:
    """Letters to change, add or take away."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
