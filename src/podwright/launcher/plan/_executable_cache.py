"""The folder in which instances share compiled executables (PopRun guide, sections 2.3 and 2.4).

One instance has none, unless a path is named. Several instances have a folder of this run alone,
inside the run's own folder, so that it is gone after every ending. A named path is kept, and the
user removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from podwright.errors import InvalidRequest
from podwright.launcher.options._instance_environment import given_variables

CACHE_VARIABLE = "POPDIST_EXECUTABLE_CACHE_PATH"
#: Stands for a new folder in the run's own. It differs from every path, because paths are absolute.
TEMPORARY_CACHE = "temporary"
#: Frameworks' own caches: the variables that name one, and a word in variables of flags.
_CACHE_DIR_VARIABLES = ("POPTORCH_CACHE_DIR", "POPXL_CACHE_DIR", "POPART_CACHE_DIR")
_CACHE_FLAG_BY_VARIABLE = {"TF_POPLAR_FLAGS": "--executable_cache_path"}


def cache_path(
    cache_option: str | None,
    instance_count: int,
    environ: Mapping[str, str],
    mpi_arguments: Iterable[Iterable[str]],
    notes: list[str],
) -> str:
    """Return an absolute path, TEMPORARY_CACHE, or nothing. cache_option:
    `--executable-cache-path`, if given.

    mpi_arguments: each instance's for mpirun, which may set variables. Raises InvalidRequest when a
    framework's own cache contradicts the requested path.
    """
    if cache_option == "":
        return ""
    framework_setting = _framework_cache_setting(environ, mpi_arguments)
    if cache_option:
        if framework_setting:
            raise InvalidRequest(
                f"--executable-cache-path and {framework_setting} cannot be given at the same time",
                would_work=f"Leave one out; the instances find the path in {CACHE_VARIABLE}",
            )
        return os.path.abspath(cache_option)
    if instance_count == 1:
        return ""
    if framework_setting:
        notes.append(
            f"{framework_setting} sets the framework's own executable cache; poprun makes none"
        )
        return ""
    return TEMPORARY_CACHE


def _framework_cache_setting(
    environ: Mapping[str, str], mpi_arguments: Iterable[Iterable[str]]
) -> str:
    """Return the setting of a framework's own cache, if there is one."""
    for variables in (environ, *map(given_variables, mpi_arguments)):
        for name in _CACHE_DIR_VARIABLES:
            if variables.get(name):
                return name
        for name, flag in _CACHE_FLAG_BY_VARIABLE.items():
            if flag in variables.get(name, ""):
                return f"{flag} in {name}"
    return ""
