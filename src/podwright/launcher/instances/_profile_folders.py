"""The folders of profiles (PopRun guide, section 2.7): one for each instance, made by popdist."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from podwright.errors import InvalidRequest
from podwright.launcher.options._instance_environment import given_variables

AUTOREPORT_VARIABLE = "POPDIST_AUTOREPORT_DIRECTORY"
ENGINE_VARIABLE = "POPLAR_ENGINE_OPTIONS"


def check_profiling(environ: Mapping[str, str], arguments: Iterable[Iterable[str]]) -> None:
    """Raise InvalidRequest, in the guide's words, if the user directs the profiles already.

    The options are searched as text, because options in broken JSON conflict just the same.
    """
    for variables in (environ, *map(given_variables, arguments)):
        if "autoReport.directory" in variables.get(ENGINE_VARIABLE, ""):
            raise InvalidRequest(
                "autoreport-dir command line argument cannot be specified when "
                f"{ENGINE_VARIABLE} contains autoReport.directory setting"
            )


#: The limits of named files of a report, of examined ones, and of nested folders.
_MAX_NAMED_FILES, _MAX_EXAMINED, _MAX_FOLDER_DEPTH = 50, 2000, 3


def report_folder(variables: Mapping[str, str], rank: int) -> str:
    """Return the folder of an instance's profile, by its environment; empty if there is none."""
    folder = variables.get(AUTOREPORT_VARIABLE, "")
    if folder:
        return os.path.abspath(os.path.join(folder, str(rank)))
    options = variables.get(ENGINE_VARIABLE, "")
    if "autoReport.directory" not in options:
        return ""
    import json

    try:
        directory = json.loads(options)["autoReport.directory"]
    except (ValueError, KeyError, TypeError):
        return ""
    return os.path.abspath(directory) if isinstance(directory, str) and directory else ""


def listed(folder: str) -> tuple[list[tuple[str, int]], int]:
    """Return the content of a profile's folder: names below it with their bytes, and how many
    more.
    """
    files: list[tuple[str, int]] = []
    pending_folders, examined = [(folder, "", 0)], 0
    while pending_folders and examined < _MAX_EXAMINED:
        folder_path, path_below, depth = pending_folders.pop()
        try:
            with os.scandir(folder_path) as entries:
                for entry in entries:
                    examined += 1
                    if examined > _MAX_EXAMINED:
                        break
                    relative_path = os.path.join(path_below, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _MAX_FOLDER_DEPTH:
                            pending_folders.append((entry.path, relative_path, depth + 1))
                    elif entry.is_file(follow_symlinks=False):
                        files.append((relative_path, entry.stat(follow_symlinks=False).st_size))
        except OSError:
            continue
    files.sort()
    return files[:_MAX_NAMED_FILES], len(files[_MAX_NAMED_FILES:])
