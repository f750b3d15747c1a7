"""Checks that the program exists, once and early, and not in a shell for each instance."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from podwright.errors import NotFound
from podwright.hosts import find_program, forbidden_program


class ProgramNotFound(NotFound):
    """The program to run does not exist."""

    exit_code = 127


class ProgramForbidden(ProgramNotFound):
    """The program to run exists, and may not be executed."""

    exit_code = 126


def check_program(name: str, environ: Mapping[str, str]) -> None:
    """Raise ProgramNotFound or ProgramForbidden for a program that cannot run."""
    if find_program(name, environ) is not None:
        return
    if path := forbidden_program(name, environ):
        raise ProgramForbidden(
            f"{path} may not be executed",
            would_work="Name the interpreter too (python3 train.py), or: chmod +x "
            f"{shlex.quote(path)}",
        )
    text = "there" if "/" in name else "on PATH"
    raise ProgramNotFound(
        f"there is no program {name!r} {text}",
        would_work="Name the interpreter too (python3 train.py), or give the program's path",
    )
