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
from podwright.launcher.options._option_table import OPTION_BY_NAME, SHORT, Option, Options


def parse(arguments: Sequence[str]) -> Options:
    """Return the options and the program of a command line. Raises InvalidRequest, in one line.

    With `--import-config` it reads that file. A typed option overrides the file's.
    """
    typed_options, program_and_arguments = _read_options(arguments)
    value_by_field: dict[str, Any] = {}
    imported_paths = [text for option, text in typed_options if option.name == "--import-config"]
    if imported_paths:
        from podwright.launcher.options._config import given, read_config

        stored_options, stored_program = read_config(imported_paths[-1])
        for option, value_text in stored_options:
            try:
                _store_option_value({}, option, value_text)
            except InvalidRequest as error:
                raise InvalidRequest(f"{imported_paths[-1]}: {error.message}") from None
        typed_options, program_and_arguments = (
            given(stored_options, typed_options),
            program_and_arguments or stored_program,
        )
    for option, value_text in typed_options:
        _store_option_value(value_by_field, option, value_text)
    if imported_paths and "export_config" in value_by_field:
        raise InvalidRequest("--import-config and --export-config cannot be used at the same time")
    if (
        program_and_arguments
        and program_and_arguments[0].startswith(",")
        and value_by_field.get("host")
    ):
        raise InvalidRequest(
            f"the list of hosts is cut short before {program_and_arguments[0]!r}",
            would_work="Write it without blanks, or in quotes: --host a,b or --host 'a, b'",
        )
    if program_and_arguments and program_and_arguments[0] != program_and_arguments[0].strip():
        raise InvalidRequest(
            f"the program's name {program_and_arguments[0]!r} begins or ends with a blank",
            would_work="Write lines that go on with a backslash and no blank after it",
        )
    return Options(program=tuple(program_and_arguments), **value_by_field)


def _read_options(arguments: Sequence[str]) -> tuple[list[tuple[Option, str]], list[str]]:
    """Return the options with their values as text, and the program."""
    typed_options = []
    remaining_arguments = list(arguments)
    while (
        remaining_arguments
        and remaining_arguments[0].startswith("-")
        and remaining_arguments[0] != "-"
    ):
        argument = remaining_arguments.pop(0)
        if argument == "--":
            break
        option, attached_value = _option_and_value(argument)
        if option.flag:
            if attached_value is not None and not option.optional:
                raise InvalidRequest(f"{option.name} takes no value, but got {attached_value!r}")
            typed_options.append(
                (option, attached_value if attached_value is not None else option.flag)
            )
        else:
            typed_options.append(
                (
                    option,
                    attached_value
                    if attached_value is not None
                    else _next_option_value(option, remaining_arguments),
                )
            )
    return typed_options, remaining_arguments


def _option_and_value(argument: str) -> tuple[Option, str | None]:
    """Return the option of a word, and the value in the same word."""
    if not argument.startswith("--"):
        if argument.strip("v") == "-":
            return OPTION_BY_NAME["--verbose"], str(len(argument) - 1)
        short_option = SHORT.get(argument[:2])
        if short_option is None:
            raise _unknown_option_error(argument)
        return short_option, argument[2:].removeprefix("=") or None
    long_name, equals_sign, attached_value = argument.partition("=")
    if set(long_name) == {"-", "v"} and long_name != "--v":
        return OPTION_BY_NAME["--verbose"], attached_value or str(len(long_name) - 2)
    option = OPTION_BY_NAME.get(long_name)
    if option is None:
        matching_names = [
            known_name for known_name in OPTION_BY_NAME if known_name.startswith(long_name)
        ]
        if not matching_names:
            raise _unknown_option_error(long_name)
        if len(matching_names) > 1:
            raise InvalidRequest(
                f"{long_name} is ambiguous", would_work=f"It could be {', '.join(matching_names)}"
            )
        option = OPTION_BY_NAME[matching_names[0]]
    return option, attached_value if equals_sign else None


def _unknown_option_error(option_name: str) -> InvalidRequest:
    import difflib  # imported only after a mistake

    nearest_names = difflib.get_close_matches(option_name, list(OPTION_BY_NAME), n=1)
    hint = f"The nearest is {nearest_names[0]}" if nearest_names else "poprun --help lists all"
    return InvalidRequest(f"there is no option {option_name}", would_work=hint)


def _next_option_value(option: Option, remaining_arguments: list[str]) -> str:
    if remaining_arguments and not _is_option(remaining_arguments[0]):
        return remaining_arguments.pop(0)
    raise InvalidRequest(
        f"{option.name} needs a value", would_work=f"Write {option.name}={option.value}"
    )


def _is_option(argument: str) -> bool:
    return (
        argument.split("=", 1)[0] in OPTION_BY_NAME
        or argument in SHORT
        or argument in ("-vv", "--vv")
    )


def _store_option_value(value_by_field: dict[str, Any], option: Option, value_text: str) -> None:
    try:
        value = option.read(value_text)
    except ValueError as error:
        raise InvalidRequest(
            f"{option.name} takes {option.meaning or error}, not {value_text!r}"
        ) from None
    if option.adds:
        value_by_field[option.field] = (*value_by_field.get(option.field, ()), value)
    else:
        value_by_field[option.field] = value
