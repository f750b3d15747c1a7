"""The user's arguments for mpirun that concern one instance."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import InvalidRequest
from podwright.launcher.plan._plan import Instance

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


def own_variables(instance: Instance) -> dict[str, str]:
    """Return the variables of one instance alone, from its environment and from `-x NAME=value`."""
    return {**dict(instance.environment), **local_arguments(instance.mpi_arguments)[0]}
