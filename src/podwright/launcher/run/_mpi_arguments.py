"""The user's arguments for mpirun that concern one instance."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import InvalidRequest
from podwright.launcher.plan._plan import Instance

#: Options of mpirun with two values, and those without a value. All others have one, or none if
#: the next word is an option.
_TWO_VALUE_OPTIONS = ("mca", "omca", "gmca", "prtemca", "pmixmca", "gprtemca", "gpmixmca", "tune")
_FLAGS = (
    *("allow-run-as-root", "oversubscribe", "nooversubscribe", "nolocal", "novm", "continuous"),
    *("tag-output", "timestamp-output", "report-bindings", "display-map", "display-allocation"),
    *("v", "verbose", "q", "quiet", "bynode", "byslot", "bycore", "bysocket", "enable-recovery"),
)
#: mpirun refuses to run as root without this option.
RUN_AS_ROOT_OPTION = "--allow-run-as-root"


def local_arguments(user_arguments: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return a user's arguments for one instance: variables, other arguments, and notes.

    `-x NAME` without a value has no effect, because the caller's environment is always passed on.
    """
    variables: dict[str, str] = {}
    other_arguments: list[str] = []
    notes: list[str] = []
    remaining = list(user_arguments)
    while remaining:
        argument = remaining.pop(0)
        if argument == "-x":
            if not remaining:
                raise InvalidRequest("-x in arguments for mpirun needs NAME or NAME=value")
            variable_name, separator, value = remaining.pop(0).partition("=")
            if separator:
                variables[variable_name] = value
        elif argument in ("--tag-output", RUN_AS_ROOT_OPTION):
            notes.append(f"{argument} belongs into --mpi-global-args")
        else:
            other_arguments.append(argument)
    return variables, other_arguments, notes


def check_options(arguments: Sequence[str], option_name: str) -> None:
    """Refuse a word that is neither an option of mpirun nor the value of one: mpirun would take it
    for the program, and all that follows for the program's arguments. Raises InvalidRequest.
    """
    values_left = 0
    for argument in arguments:
        if argument.startswith("-") and len(argument) > 1:
            bare_name = argument.lstrip("-")
            values_left = 2 if bare_name in _TWO_VALUE_OPTIONS else 1
            if "=" in argument or bare_name in _FLAGS:
                values_left = 0
        elif values_left == 0:
            raise InvalidRequest(
                f"{argument!r} is no option of mpirun, and no value of the option before it: "
                "mpirun would start it as the program",
                operation=option_name,
                would_work=f"{option_name}='--NAME VALUE'; the program comes after all options",
            )
        else:
            values_left -= 1


def own_variables(instance: Instance) -> dict[str, str]:
    """Return the variables of one instance alone, from its environment and from `-x NAME=value`."""
    return {**dict(instance.environment), **local_arguments(instance.mpi_arguments)[0]}
