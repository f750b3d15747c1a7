"""Reads the #SBATCH lines as sbatch does: as one list of words over all lines, each with its line.

sbatch's rules (src/sbatch/opt.c): a line counts if it begins with the seven letters; reading ends
at the first line that is neither blank nor a comment; a # ends the line even within a word; and the
words of all lines together are its arguments, so that an option's value may come from the next
line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.lint._option_values import problem_of_value
from podwright.gpu.requests import (
    Given,
    SlurmOption,
    known,
    parse_options,
    read_request,
)

MAGIC = "#SBATCH"
# A first line without its # or #!. sbatch refuses the script for it, and for nothing below it.
LOST_SHEBANG = re.compile(r"\s*!?\s*/\S*/(env\s+\S*|(ba|z|k|da)?sh)\b")
#: An address in angle brackets, which is not a placeholder.
_ADDRESS = r"(?![^<>@]*(?i:your|user|name|mail|login))[^<>\s@]+@[^<>\s@]+\.[a-z]{2,}>"
# The forms in which a template leaves a value open.
_LEFT_OPEN = re.compile(
    rf"<(?!{_ADDRESS})[^<>=]*>"
    r"|\{\{|\{%|\[[A-Za-z_ ]{3,}\]|%%\w+%%|__[A-Z_]+__|X{3}\w+X{3}|@\w+@"
    r"|(?<!\$)\{[^{}$]*\}|![A-Z]{2,}_\w+|FIXME|TODO|CHANGE_?ME|\?\?|HH:MM|DD-HH|\.\.\.|\u2026"
    r"|[-=:\s][XxNM]+(?=\s*$|\s+#)|=X+[A-Z]?\b|%\(\w+\)[sdif]|\$\{\{|%[A-Z][A-Z_]{2,}%"
    r"|\b(?i:your[-_]\w+|placeholder|replace[-_]?me|to[-_]be[-_]\w+)|=_{2,}|[=:]\s*$"
)
#: The forms that a person fills in. Braces and the like are another program's.
_BY_A_PERSON = re.compile(rf"<(?!{_ADDRESS})[^<>=]*>|\bX+\b|(?i:\byour[-_])|\?\?|\.\.\.")
_BY_A_PROGRAM = re.compile(r"[{}%$@!]|__")
_TO_COME = re.compile(r"\s*(\{\{.*\}\}|\{%.*%\}|@\w+@|<[A-Z_]+>)\s*$")  # a template's own line
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_BLANKS = (
    " \t\n\v\f\r"  # blanks of the C library; the blank of a web page (U+00A0) is a letter to it
)
# Such a blank where a word should end: before an option, or at an end of the word.
ODD_BLANK = re.compile(
    r"^[\u00a0\u2002-\u200b\u202f\ufeff]+|[\u00a0\u2002-\u200b\u202f\ufeff]+(?=-|$)"
)
#: Options that sbatch knew before 20.11 under other names, and refuses since: old name, new name.
#: tests/outer/gpu/test_lint.py submits scripts with them to real Slurm.
_RENAMED = {
    "workdir": "chdir",
    "share": "oversubscribe",
    "mincores": "cores-per-socket",
    "minsockets": "sockets-per-node",
    "minthreads": "threads-per-core",
}
_FAR = 3  # the number of changed letters from which a word is not a misspelling


class Directive(NamedTuple):
    """One option: its line, counted from 1, and the option as it was written."""

    line: int
    given: Given


class Problem(NamedTuple):
    """Something that sbatch cannot read.

    `kind` is the rule's name, `near` the option that may be meant. `renamed`: `near` is certainly
    meant, since it is the option's present name.
    """

    kind: str
    line: int
    word: str
    reason: str
    near: str = ""
    renamed: bool = False


class Directives:
    """All options of a script.

    `parts` is the number of parts of a het job, `first_command` the line at which reading ends,
    `open` the names of options whose values a template leaves open, and `refused` what sbatch
    refuses in the first line that a person has still to fill in.
    """

    def __init__(self) -> None:
        self.given: list[Directive] = []
        self.problems: list[Problem] = []
        self.unknown: list[Problem] = []
        self.first_command = 0
        self.parts = 1
        self.open: set[str] = set()
        self.refused: Problem | None = None


def _names(line: str) -> set[str]:
    """Return the options that a line names, as far as it can be read."""
    short = {option.short: name for name, option in known("sbatch").items() if option.short}
    words = re.findall(r"\s(--[\w-]+|-\w)", line)
    return {word[2:] if word.startswith("--") else short.get(word[1], "") for word in words}


def left_open(line: str) -> bool:
    """Return whether a template leaves a part of this line to be filled in."""
    directive = MAGIC + line.removeprefix(MAGIC).partition("#")[0]
    return bool(_LEFT_OPEN.search(directive)) or "FIXME" in line


def waits_for_value(line: str) -> bool:
    """Return whether a line up to the first command, inclusive, belongs to a template."""
    return bool(_TO_COME.match(line)) or (line.startswith(MAGIC) and left_open(line))


def words_of(line: str) -> list[str] | None:
    """Return the words behind #SBATCH, split as sbatch splits them; None if a quote is not
    closed.
    """
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
    """Read everything above the first command."""
    directives = Directives()
    words: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            if number == 1 and LOST_SHEBANG.match(line):
                continue
            if line.strip() and not line.lstrip().startswith("#") and not _TO_COME.match(line):
                directives.first_command = number
                break
            continue
        if not line.startswith(MAGIC):
            continue
        if left_open(line):
            directives.open |= _names(line)
            directives.refused = directives.refused or _as_it_stands(number, line)
            continue
        cut = words_of(line[len(MAGIC) :])
        if cut is None:
            reason = "a quote is not closed: sbatch refuses the script"
            directives.problems.append(Problem("bad-value", number, line, reason))
        elif cut and cut[0].lower() in ("hetjob", "packjob"):
            directives.parts += 1
            words += [(number, word) for word in cut[1:]]
        else:
            words += [(number, word) for word in cut]
    _read(words, directives)
    return directives


def _read(words: list[tuple[int, str]], directives: Directives) -> None:
    table = known("sbatch")
    index = 0
    while index < len(words):
        line, word = words[index]
        index += 1
        if ODD_BLANK.search(word):
            reason = "a blank as web pages have it, which is a letter to sbatch"
            directives.problems.append(Problem("typographic-dash", line, word, reason))
        elif word[:1] in _DASHES:
            reason = f"{word[0]!r} is a typographic dash, no hyphen: sbatch refuses the script"
            directives.problems.append(Problem("typographic-dash", line, word, reason))
        elif word == "--" or not word.startswith("-") or word == "-":
            reason = f"{word!r} belongs to no option: sbatch refuses the script"
            if line not in {problem.line for problem in directives.problems}:
                directives.problems.append(Problem("stray-word", line, word, reason))
        elif word.startswith("--") and not _is_known(word, table):
            directives.unknown.append(_unknown(line, word, table))
            while (
                index < len(words)
                and words[index][0] == line
                and not words[index][1].startswith("-")
            ):
                index += 1
        else:
            after = words[index] if index < len(words) else None
            index += _option(line, word, after, directives)


def _as_it_stands(number: int, line: str) -> Problem | None:
    """Return what sbatch refuses in a line that a person has still to fill in.

    None: nothing, or another program fills it in.
    """
    options = line.partition(" #")[0]
    if not _BY_A_PERSON.search(options) or _BY_A_PROGRAM.search(options):
        return None
    scratch = Directives()
    _read([(number, word) for word in words_of(options[len(MAGIC) :]) or ()], scratch)
    return next(iter(scratch.problems), None)


def _is_known(word: str, table: dict[str, SlurmOption]) -> bool:
    name = word[2:].partition("=")[0]
    return name in table or sum(key.startswith(name) for key in table) == 1


def _is_option(word: str) -> bool:
    """Return whether a word is an option of its own, and not a value."""
    return (
        word.startswith("-")
        and not word[1:2].isdigit()
        and (not word.startswith("--") or _is_known(word, known("sbatch")))
    )


def _option(line: int, word: str, after: tuple[int, str] | None, directives: Directives) -> int:
    """Read one option. Returns it with the number of the words behind it that belong to it."""
    consumed = 0
    try:
        try:
            given, _ = parse_options([word], "sbatch")
        except InvalidRequest as error:
            if after is None or "needs a value" not in error.problem:
                raise
            given, _ = parse_options([word, after[1]], "sbatch")
            consumed = 1
            if after[0] != line and _is_option(after[1]):
                reason = f"{word} has no value: sbatch takes {after[1]} of line {after[0]} for it"
                directives.problems.append(Problem("bad-value", line, word, reason))
                return 0
    except InvalidRequest as error:
        kind = "bad-value" if "value" in error.problem else "unknown-option"
        near = f"-{word}" if _is_known(f"-{word}", known("sbatch")) else ""
        directives.problems.append(Problem(kind, line, word, error.problem, near))
        return consumed
    spaced = consumed and after and after[1].startswith("=")
    spaced = spaced or (
        word.endswith("=") and after and after[0] == line and after[1][:1] not in ("-", "")
    )
    if spaced:
        reason = "blanks around =: sbatch takes them as ends of words, and refuses the script"
        directives.problems.append(Problem("blanks-around-equals", line, word, reason))
        lacks_argument = not consumed or (after is not None and after[1] == "=")
        return consumed + lacks_argument
    for option in given:
        problem = _value_problem(option)
        if problem:
            near = f"-{word}" if _is_known(f"-{word}", known("sbatch")) else ""
            directives.problems.append(Problem("bad-value", line, option.text, problem, near))
        else:
            directives.given.append(Directive(line, option))
    return consumed


def _value_problem(given: Given) -> str:
    if "$" in given.value:
        return ""  # this has a rule of its own
    if given.name == "nodes" and re.fullmatch(r"[\d,:kKmM-]+", given.value) and "," in given.value:
        return ""  # a list of sizes, as in newer releases
    try:
        read_request([given], "sbatch")
    except InvalidRequest as error:
        return error.problem
    return problem_of_value(given)


def _unknown(line: int, word: str, table: dict[str, SlurmOption]) -> Problem:
    import difflib

    name = word[2:].partition("=")[0]
    if new := _RENAMED.get(name):
        reason = f"sbatch refuses --{name}: its name has been --{new} since Slurm 20.11 or before"
        return Problem("unknown-option", line, word, reason, f"--{new}", renamed=True)
    near = ""
    close = difflib.get_close_matches(name.lower().replace("_", "-"), list(table), 1, 0.8)
    if close and _distance(name, close[0]) < _FAR and len(name) >= _FAR + 1:
        near = f"--{close[0]}"
    return Problem("unknown-option", line, word, f"sbatch has no option --{name}", near)


def _distance(word: str, other: str) -> int:
    """Return the number of letters to change, add or remove."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
