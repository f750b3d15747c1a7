"""The folder in which instances share compiled executables (PopRun guide, sections 2.3 and 2.4).

One instance has none, unless a path is named. Several instances have a folder of this run alone,
inside the run's own folder, so that it is gone after every ending. A named path is kept, and the
user removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from podwright.errors import InvalidRequest
from podwright.launcher.options._environment import given_variables

CACHE_VARIABLE = "POPDIST_EXECUTABLE_CACHE_PATH"
#: Stands for a new folder in the run's own. It differs from every path, because paths are absolute.
TEMPORARY = "temporary"
#: Frameworks' own caches: the variables that name one, and a word in variables of flags.
_FRAMEWORKS = ("POPTORCH_CACHE_DIR", "POPXL_CACHE_DIR", "POPART_CACHE_DIR")
_FLAGS = {"TF_POPLAR_FLAGS": "--executable_cache_path"}


def cache_path(
    option: str | None,
    instances: int,
    environ: Mapping[str, str],
    arguments: Iterable[Iterable[str]],
    notes: list[str],
) -> str:
    """Return an absolute path, TEMPORARY, or nothing. option: `--executable-cache-path`, if given.

    arguments: each instance's for mpirun, which may set variables. Raises InvalidRequest when a
    framework's own cache contradicts the requested path.
    """
    if option == "":
        return ""
    own = _framework(environ, arguments)
    if option:
        if own:
            raise InvalidRequest(
                f"--executable-cache-path and {own} cannot be given at the same time",
                would_work=f"Leave one out; the instances find the path in {CACHE_VARIABLE}",
            )
        return os.path.abspath(option)
    if instances == 1:
        return ""
    if own:
        notes.append(f"{own} sets the framework's own executable cache; poprun makes none")
        return ""
    return TEMPORARY


def _framework(environ: Mapping[str, str], arguments: Iterable[Iterable[str]]) -> str:
    """Return the setting of a framework's own cache, if there is one."""
    for variables in (environ, *map(given_variables, arguments)):
        for name in _FRAMEWORKS:
            if variables.get(name):
                return name
        for name, flag in _FLAGS.items():
            if flag in variables.get(name, ""):
                return f"{flag} in {name}"
    return ""
