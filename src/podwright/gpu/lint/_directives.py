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
from podwright.gpu.lint._option_values import option_value_problem
from podwright.gpu.requests import (
    NEW_NAMES,
    Given,
    SlurmOption,
    known,
    meant_option,
    parse_options,
    read_request,
)

DIRECTIVE_PREFIX = "#SBATCH"
# A first line without its # or #!. sbatch refuses the script for it, and for nothing below it.
LOST_SHEBANG_PATTERN = re.compile(r"\s*!?\s*/\S*/(env\s+\S*|(ba|z|k|da)?sh)\b")
#: An address in angle brackets, which is not a placeholder.
_EMAIL_PATTERN = r"(?![^<>@]*(?i:your|user|name|mail|login))[^<>\s@]+@[^<>\s@]+\.[a-z]{2,}>"
# The forms in which a template leaves a value open.
_PLACEHOLDER_PATTERN = re.compile(
    rf"<(?!{_EMAIL_PATTERN})[^<>=]*>"
    r"|\{\{|\{%|\[[A-Za-z_ ]{3,}\]|%%\w+%%|__[A-Z_]+__|X{3}\w+X{3}|@\w+@"
    r"|(?<!\$)\{[^{}$]*\}|![A-Z]{2,}_\w+|FIXME|TODO|CHANGE_?ME|\?\?|HH:MM|DD-HH|\.\.\.|\u2026"
    r"|[-=:\s][XxNM]+(?=\s*$|\s+#)|=X+[A-Z]?\b|%\(\w+\)[sdif]|\$\{\{|%[A-Z][A-Z_]{2,}%"
    r"|\b(?i:your[-_]\w+|placeholder|replace[-_]?me|to[-_]be[-_]\w+)|=_{2,}|[=:]\s*$"
)
#: The forms that a person fills in. Braces and the like are another program's.
_HUMAN_PLACEHOLDER = re.compile(
    rf"<(?!{_EMAIL_PATTERN})[^<>=]*>|\bX+\b|(?i:\byour[-_])|\?\?|\.\.\."
)
_PROGRAM_PLACEHOLDER = re.compile(r"[{}%$@!]|__")
# A line that a template engine replaces, such as {{ options }} or <OPTIONS>.
_TEMPLATE_LINE_PATTERN = re.compile(r"\s*(\{\{.*\}\}|\{%.*%\}|@\w+@|<[A-Z_]+>)\s*$")
_TYPOGRAPHIC_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
# Blanks of the C library; the blank of a web page (U+00A0) is a letter to it.
_C_BLANKS = " \t\n\v\f\r"
# Such a blank where a word should end: before an option, or at an end of the word.
ODD_BLANK_PATTERN = re.compile(
    r"^[\u00a0\u2002-\u200b\u202f\ufeff]+|[\u00a0\u2002-\u200b\u202f\ufeff]+(?=-|$)"
)
#: Options that sbatch knew before 20.11 under other names, and refuses since: old name, new name.
#: tests/outer/gpu/test_lint.py submits scripts with them to real Slurm.


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


def _named_options(line: str) -> set[str]:
    """Return the options that a line names, as far as it can be read."""
    name_by_short = {option.short: name for name, option in known("sbatch").items() if option.short}
    option_words = re.findall(r"\s(--[\w-]+|-\w)", line)
    return {
        word[2:] if word.startswith("--") else name_by_short.get(word[1], "")
        for word in option_words
    }


def has_placeholder(line: str) -> bool:
    """Return whether a template leaves a part of this line to be filled in."""
    text = DIRECTIVE_PREFIX + line.removeprefix(DIRECTIVE_PREFIX).partition("#")[0]
    return bool(_PLACEHOLDER_PATTERN.search(text)) or "FIXME" in line


def waits_for_value(line: str) -> bool:
    """Return whether a line up to the first command, inclusive, belongs to a template."""
    return bool(_TEMPLATE_LINE_PATTERN.match(line)) or (
        line.startswith(DIRECTIVE_PREFIX) and has_placeholder(line)
    )


def words_of(line: str) -> list[str] | None:
    """Return the words behind #SBATCH, split as sbatch splits them; None if a quote is not
    closed.
    """
    words: list[str] = []
    word_letters: list[str] | None = None
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
            word_letters = word_letters or []
            continue
        elif letter == "#":
            break
        elif letter in _C_BLANKS:
            if word_letters is not None:
                words.append("".join(word_letters))
            word_letters = None
            continue
        word_letters = [*(word_letters or []), letter]
    if quote:
        return None
    if word_letters is not None:
        words.append("".join(word_letters))
    return words


def read_directives(script_lines: list[str]) -> Directives:
    """Read everything above the first command."""
    directives = Directives()
    numbered_words: list[tuple[int, str]] = []
    for line_number, line in enumerate(script_lines, 1):
        if not line.startswith("#"):
            if line_number == 1 and LOST_SHEBANG_PATTERN.match(line):
                continue
            if (
                line.strip()
                and not line.lstrip().startswith("#")
                and not _TEMPLATE_LINE_PATTERN.match(line)
            ):
                directives.first_command = line_number
                break
            continue
        if not line.startswith(DIRECTIVE_PREFIX):
            continue
        if has_placeholder(line):
            directives.open |= _named_options(line)
            directives.refused = directives.refused or _refused_as_written(line_number, line)
            continue
        line_words = words_of(line[len(DIRECTIVE_PREFIX) :])
        if line_words is None:
            reason = "a quote is not closed: sbatch refuses the script"
            directives.problems.append(Problem("bad-value", line_number, line, reason))
        elif line_words and line_words[0].lower() in ("hetjob", "packjob"):
            directives.parts += 1
            numbered_words += [(line_number, word) for word in line_words[1:]]
        else:
            numbered_words += [(line_number, word) for word in line_words]
    _read_words(numbered_words, directives)
    return directives


def _read_words(numbered_words: list[tuple[int, str]], directives: Directives) -> None:
    known_options = known("sbatch")
    word_index = 0
    while word_index < len(numbered_words):
        line_number, word = numbered_words[word_index]
        word_index += 1
        if ODD_BLANK_PATTERN.search(word):
            reason = "a blank as web pages have it, which is a letter to sbatch"
            directives.problems.append(Problem("typographic-dash", line_number, word, reason))
        elif word[:1] in _TYPOGRAPHIC_DASHES:
            reason = f"{word[0]!r} is a typographic dash, no hyphen: sbatch refuses the script"
            directives.problems.append(Problem("typographic-dash", line_number, word, reason))
        elif word == "--" or not word.startswith("-") or word == "-":
            reason = f"{word!r} belongs to no option: sbatch refuses the script"
            if line_number not in {problem.line for problem in directives.problems}:
                directives.problems.append(Problem("stray-word", line_number, word, reason))
        elif word.startswith("--") and not _is_known_option(word, known_options):
            directives.unknown.append(_unknown_option_problem(line_number, word, known_options))
            while (
                word_index < len(numbered_words)
                and numbered_words[word_index][0] == line_number
                and not numbered_words[word_index][1].startswith("-")
            ):
                word_index += 1
        else:
            next_word = numbered_words[word_index] if word_index < len(numbered_words) else None
            word_index += _read_option(line_number, word, next_word, directives)


def _refused_as_written(line_number: int, line: str) -> Problem | None:
    """Return what sbatch refuses in a line that a person has still to fill in.

    None: nothing, or another program fills it in.
    """
    text = line.partition(" #")[0]
    if not _HUMAN_PLACEHOLDER.search(text) or _PROGRAM_PLACEHOLDER.search(text):
        return None
    directives = Directives()
    _read_words(
        [(line_number, word) for word in words_of(text[len(DIRECTIVE_PREFIX) :]) or ()],
        directives,
    )
    return next(iter(directives.problems), None)


def _is_known_option(word: str, known_options: dict[str, SlurmOption]) -> bool:
    option_name = word[2:].partition("=")[0]
    return (
        option_name in known_options
        or sum(known_name.startswith(option_name) for known_name in known_options) == 1
    )


def _is_option(word: str) -> bool:
    """Return whether a word is an option of its own, and not a value."""
    return (
        word.startswith("-")
        and not word[1:2].isdigit()
        and (not word.startswith("--") or _is_known_option(word, known("sbatch")))
    )


def _read_option(
    line_number: int, word: str, next_word: tuple[int, str] | None, directives: Directives
) -> int:
    """Read one option. Returns it with the number of the words behind it that belong to it."""
    consumed_words = 0
    try:
        try:
            parsed_options, _ = parse_options([word], "sbatch")
        except InvalidRequest as error:
            if next_word is None or "needs a value" not in error.problem:
                raise
            parsed_options, _ = parse_options([word, next_word[1]], "sbatch")
            consumed_words = 1
            if next_word[0] != line_number and _is_option(next_word[1]):
                reason = (
                    f"{word} has no value: sbatch takes {next_word[1]} of line {next_word[0]} for "
                    "it"
                )
                directives.problems.append(Problem("bad-value", line_number, word, reason))
                return 0
    except InvalidRequest as error:
        rule_name = "bad-value" if "value" in error.problem else "unknown-option"
        suggestion = f"-{word}" if _is_known_option(f"-{word}", known("sbatch")) else ""
        directives.problems.append(Problem(rule_name, line_number, word, error.problem, suggestion))
        return consumed_words
    has_spaced_equals = consumed_words and next_word and next_word[1].startswith("=")
    has_spaced_equals = has_spaced_equals or (
        word.endswith("=")
        and next_word
        and next_word[0] == line_number
        and next_word[1][:1] not in ("-", "")
    )
    if has_spaced_equals:
        reason = "blanks around =: sbatch takes them as ends of words, and refuses the script"
        directives.problems.append(Problem("blanks-around-equals", line_number, word, reason))
        takes_extra_word = not consumed_words or (next_word is not None and next_word[1] == "=")
        return consumed_words + takes_extra_word
    for option in parsed_options:
        value_problem = _value_problem(option)
        if value_problem:
            suggestion = f"-{word}" if _is_known_option(f"-{word}", known("sbatch")) else ""
            directives.problems.append(
                Problem("bad-value", line_number, option.text, value_problem, suggestion)
            )
        else:
            directives.given.append(Directive(line_number, option))
    return consumed_words


def _value_problem(option: Given) -> str:
    if "$" in option.value:
        return ""  # this has a rule of its own
    if (
        option.name == "nodes"
        and re.fullmatch(r"[\d,:kKmM-]+", option.value)
        and "," in option.value
    ):
        return ""  # a list of sizes, as in newer releases
    try:
        read_request([option], "sbatch")
    except InvalidRequest as error:
        return error.problem
    return option_value_problem(option)


def _unknown_option_problem(
    line_number: int, word: str, known_options: dict[str, SlurmOption]
) -> Problem:
    option_name = word[2:].partition("=")[0]
    if new_name := NEW_NAMES.get(option_name):
        reason = (
            f"sbatch refuses --{option_name}: its name has been --{new_name} since Slurm 20.11 or "
            "before"
        )
        return Problem("unknown-option", line_number, word, reason, f"--{new_name}", renamed=True)
    meant = meant_option(option_name, known_options)
    suggestion = f"--{meant}" if meant else ""
    return Problem(
        "unknown-option", line_number, word, f"sbatch has no option --{option_name}", suggestion
    )
