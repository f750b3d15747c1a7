"""What users tell mpirun about one instance."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import InvalidRequest
from podwright.launcher._plan import Instance

#: Without it mpirun refuses to run as root.
ROOT = "--allow-run-as-root"


def local_arguments(words: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """A user's arguments for one instance: variables set, other arguments, notes.

    `-x NAME` without a value says what is so anyway: the caller's environment is passed on.
    """
    variables: dict[str, str] = {}
    out: list[str] = []
    notes: list[str] = []
    line = list(words)
    while line:
        word = line.pop(0)
        if word == "-x":
            if not line:
                raise InvalidRequest("-x in arguments for mpirun needs NAME or NAME=value")
            name, equals, value = line.pop(0).partition("=")
            if equals:
                variables[name] = value
        elif word in ("--tag-output", ROOT):
            notes.append(f"{word} belongs into --mpi-global-args")
        else:
            out.append(word)
    return variables, out, notes


def own_variables(instance: Instance) -> dict[str, str]:
    """The variables that an instance alone gets, as it is and as `-x NAME=value` says."""
    return {**dict(instance.environment), **local_arguments(instance.mpi_arguments)[0]}
