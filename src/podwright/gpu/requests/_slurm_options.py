"""Reads the options of sbatch, salloc and srun as Slurm reads them: abbreviations, short forms,
values in the next word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.site.submit_options import COMMANDS, OPTIONS, SlurmOption, known

__all__ = [
    "COMMANDS",
    "NEW_NAMES",
    "OPTIONS",
    "Given",
    "SlurmOption",
    "find_option",
    "known",
    "may_be_a_plugins",
    "meant_option",
    "parse_options",
]

#: Options of old releases, and what they are called now.
NEW_NAMES = {
    "workdir": "chdir",
    "share": "oversubscribe",
    "mincores": "cores-per-socket",
    "minsockets": "sockets-per-node",
    "minthreads": "threads-per-core",
}
_MAX_TYPO_DISTANCE = 3  # the number of changed letters from which a word is not a misspelling


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


def meant_option(option_name: str, option_names: Iterable[str]) -> str:
    """Return the option of which this is a misspelling; empty where it is none."""
    import difflib

    name = option_name.lower().replace("_", "-")
    for near in difflib.get_close_matches(name, list(option_names), 1, 0.8):
        if _distance(option_name, near) < _MAX_TYPO_DISTANCE < len(option_name):
            return near
    return ""


def _distance(word: str, other: str) -> int:
    """Return the number of letters to change, add or remove."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


def may_be_a_plugins(option_name: str, command: str) -> bool:
    """Return whether this resembles no option of the command's, as `container-image` does."""
    names = known(command)
    return not (
        option_name in NEW_NAMES
        or any(name.startswith(option_name) for name in names)
        or meant_option(option_name, names)
    )


def _nearest_hint(option_name: str, option_names: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    if new_name := NEW_NAMES.get(option_name):
        return f"Its name is --{new_name} now"
    matches = difflib.get_close_matches(option_name, list(option_names), n=1, cutoff=0.5)
    return f"The nearest is --{matches[0]}" if matches else ""


def parse_options(
    arguments: list[str], command: str, *, of_plugins: bool = False
) -> tuple[list[Given], list[str]]:
    """The options at the front of these words, and the words that follow them.

    Reads as getopt does: `--name=value`, `--name value`, `-N2`, `-N 2`, `--` ends. of_plugins:
    `--name=value` with a name that no option resembles is one of a plugin of the site. Raises
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
            if of_plugins and may_be_a_plugins(option_name, command):
                if not equals_sign and remaining_arguments[:1] and remaining_arguments[0][0] != "-":
                    raise InvalidRequest(
                        f"{command} has no option --{option_name}",
                        would_work="If a plugin of the site has it, write "
                        f"--{option_name}={remaining_arguments[0]}, or -- between the two",
                        option=option_name,
                    )
                given_options.append(Given(option_name, option_value, argument))
                continue
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
