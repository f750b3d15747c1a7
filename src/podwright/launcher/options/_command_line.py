"""Reads a command line of poprun by the table of its options.

The syntax is that of PopRun, which follows Boost and not argparse. Options end at the first word
that is not an option. `--name=value` and `--name value` are equal. Any unambiguous prefix of a name
is accepted. A value may begin with a dash unless it is itself an option. The last of several
occurrences counts, except that arguments for mpirun add up. A boolean takes a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podwright.errors import InvalidRequest
from podwright.launcher.options._option_table import BY_NAME, SHORT, Option
from podwright.launcher.options._options import Options


def parse(words: Sequence[str]) -> Options:
    """Return the options and the program of a command line. Raises InvalidRequest, in one line.

    With `--import-config` it reads that file. A typed option overrides the file's.
    """
    typed, program = _read(words)
    values: dict[str, Any] = {}
    imported = [text for option, text in typed if option.name == "--import-config"]
    if imported:
        from podwright.launcher.options._config import given, read_config

        stored, stored_program = read_config(imported[-1])
        for option, text in stored:
            try:
                _store({}, option, text)
            except InvalidRequest as error:
                raise InvalidRequest(f"{imported[-1]}: {error.message}") from None
        typed, program = given(stored, typed), program or stored_program
    for option, text in typed:
        _store(values, option, text)
    if imported and "export_config" in values:
        raise InvalidRequest("--import-config and --export-config cannot be used at the same time")
    if program and program[0].startswith(",") and values.get("host"):
        raise InvalidRequest(
            f"the list of hosts is cut short before {program[0]!r}",
            would_work="Write it without blanks, or in quotes: --host a,b or --host 'a, b'",
        )
    if program and program[0] != program[0].strip():
        raise InvalidRequest(
            f"the program's name {program[0]!r} begins or ends with a blank",
            would_work="Write lines that go on with a backslash and no blank after it",
        )
    return Options(program=tuple(program), **values)


def _read(words: Sequence[str]) -> tuple[list[tuple[Option, str]], list[str]]:
    """Return the options with their values as text, and the program."""
    typed = []
    line = list(words)
    while line and line[0].startswith("-") and line[0] != "-":
        word = line.pop(0)
        if word == "--":
            break
        option, given = _option(word)
        if option.flag:
            if given is not None and not option.optional:
                raise InvalidRequest(f"{option.name} takes no value, but got {given!r}")
            typed.append((option, given if given is not None else option.flag))
        else:
            typed.append((option, given if given is not None else _next(option, line)))
    return typed, line


def _option(word: str) -> tuple[Option, str | None]:
    """Return the option of a word, and the value in the same word."""
    if not word.startswith("--"):
        if word.strip("v") == "-":
            return BY_NAME["--verbose"], str(len(word) - 1)
        short = SHORT.get(word[:2])
        if short is None:
            raise _unknown(word)
        return short, word[2:].removeprefix("=") or None
    name, equals, value = word.partition("=")
    if set(name) == {"-", "v"} and name != "--v":
        return BY_NAME["--verbose"], value or str(len(name) - 2)
    option = BY_NAME.get(name)
    if option is None:
        matches = [known for known in BY_NAME if known.startswith(name)]
        if not matches:
            raise _unknown(name)
        if len(matches) > 1:
            raise InvalidRequest(
                f"{name} is ambiguous", would_work=f"It could be {', '.join(matches)}"
            )
        option = BY_NAME[matches[0]]
    return option, value if equals else None


def _unknown(name: str) -> InvalidRequest:
    import difflib  # imported only after a mistake

    close = difflib.get_close_matches(name, list(BY_NAME), n=1)
    hint = f"The nearest is {close[0]}" if close else "poprun --help lists all"
    return InvalidRequest(f"there is no option {name}", would_work=hint)


def _next(option: Option, line: list[str]) -> str:
    if line and not _is_option(line[0]):
        return line.pop(0)
    raise InvalidRequest(
        f"{option.name} needs a value", would_work=f"Write {option.name}={option.value}"
    )


def _is_option(word: str) -> bool:
    return word.split("=", 1)[0] in BY_NAME or word in SHORT or word in ("-vv", "--vv")


def _store(values: dict[str, Any], option: Option, text: str) -> None:
    try:
        value = option.read(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{option.name} takes {option.meaning or error}, not {text!r}"
        ) from None
    if option.adds:
        values[option.field] = (*values.get(option.field, ()), value)
    else:
        values[option.field] = value
