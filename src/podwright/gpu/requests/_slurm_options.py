"""Reads the options of sbatch, salloc and srun as Slurm reads them: abbreviations, short forms,
values in the next word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.site.submit_options import COMMANDS, OPTIONS, SlurmOption, known

__all__ = ["COMMANDS", "OPTIONS", "Given", "SlurmOption", "find_option", "known", "parse_options"]


class Given(NamedTuple):
    """One option as it was written."""

    name: str
    value: str
    text: str


def find_option(option_name: str, command: str) -> SlurmOption:
    """The option of this long name or unambiguous beginning; InvalidRequest with the nearest."""
    options_by_name = known(command)
    if option_name in options_by_name:
        # srun itself has both spellings.
        return options_by_name["cpu-bind" if option_name == "cpu_bind" else option_name]
    matching_options = [
        option for full_name, option in options_by_name.items() if full_name.startswith(option_name)
    ]
    if len(matching_options) == 1:
        return matching_options[0]
    if matching_options:
        raise InvalidRequest(
            f"--{option_name} is ambiguous",
            would_work="Write one of "
            + ", ".join(f"--{option.name}" for option in matching_options),
            option=option_name,
        )
    raise InvalidRequest(
        f"{command} has no option --{option_name}",
        would_work=_nearest_hint(option_name, options_by_name),
        option=option_name,
    )


def _nearest_hint(option_name: str, option_names: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    matches = difflib.get_close_matches(option_name, list(option_names), n=1, cutoff=0.5)
    return f"The nearest is --{matches[0]}" if matches else ""


def parse_options(arguments: list[str], command: str) -> tuple[list[Given], list[str]]:
    """The options at the front of these words, and the words that follow them.

    Reads as getopt does: `--name=value`, `--name value`, `-N2`, `-N 2`, `--` ends. Raises
    InvalidRequest for what the command does not know.
    """
    given_options: list[Given] = []
    options_by_letter = {
        known_option.short: known_option
        for known_option in known(command).values()
        if known_option.short
    }
    remaining_arguments = list(arguments)
    while (
        remaining_arguments
        and remaining_arguments[0].startswith("-")
        and remaining_arguments[0] != "-"
    ):
        argument = remaining_arguments.pop(0)
        if argument == "--":
            break
        if argument.startswith("--"):
            option_name, equals_sign, option_value = argument[2:].partition("=")
            option = find_option(option_name, command)
            written_text = argument
            if option.argument == "r" and not equals_sign:
                if not remaining_arguments:
                    raise InvalidRequest(f"--{option.name} needs a value", option=option.name)
                option_value = remaining_arguments.pop(0)
                written_text = f"{argument} {option_value}"
            if option.argument == "n" and equals_sign:
                raise InvalidRequest(f"--{option.name} takes no value", option=option.name)
            given_options.append(Given(option.name, option_value, written_text))
            continue
        remaining_letters = argument[1:]
        while remaining_letters:
            option_letter, remaining_letters = remaining_letters[0], remaining_letters[1:]
            if option_letter not in options_by_letter:
                raise InvalidRequest(
                    f"{command} has no option -{option_letter}", option=option_letter
                )
            option, option_value, written_text = (
                options_by_letter[option_letter],
                "",
                f"-{option_letter}",
            )
            if option.argument == "r":
                if remaining_letters:
                    option_value, remaining_letters = remaining_letters, ""
                    written_text = f"-{option_letter}{option_value}"
                elif remaining_arguments:
                    option_value = remaining_arguments.pop(0)
                    written_text = f"-{option_letter} {option_value}"
                else:
                    raise InvalidRequest(f"-{option_letter} needs a value", option=option.name)
            elif option.argument == "o":
                option_value, remaining_letters = remaining_letters, ""
            given_options.append(Given(option.name, option_value, written_text))
    return given_options, remaining_arguments
