"""Plans lint at submission: our job_submit.lua before the site's own, and a line in slurm.conf.

Where Podwright's pods have a job_submit.lua, ours goes behind it, in the place of the site's own.
It has its own mark, so that it is installed and removed independently of the GPU configuration.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.edit import OLD_LINE_MARK, changed, joined, undone
from podwright.slurm.site.file_changes import FileChanges
from podwright.slurm.site.files import read

MARK: Final = "podwright-lint"
LEVELS: Final = ("warn", "refuse", "off")
#: The time in milliseconds that a submission waits for the service.
ANSWER_TIMEOUT_MS: Final = 20
_SCRIPT_HEADER: Final = "-- Podwright reads job scripts at submission"
_PODS_SCRIPT_START: Final = "-- Podwright's part of job_submit"
_SUBMIT: Final = "job_submit.lua"
_SITE_OWN_SCRIPT: Final = "job_submit.own.lua"
_SCRIPT_BEHIND_PODS: Final = "job_submit.site.lua"


class Places(NamedTuple):
    """The paths of slurm.conf, of the compiled library, and of the service's socket."""

    slurm_conf: Path
    library: Path
    socket: Path


def configure(places: Places, level: str) -> FileChanges:
    """The plan for `warn` or `refuse`. Raises InvalidRequest where it cannot work."""
    slurm_conf, config_folder = places.slurm_conf, places.slurm_conf.parent
    if not places.library.exists():
        raise InvalidRequest(
            f"{places.library} is not there: job_submit asks by it",
            operation=f"--lint={level}",
            would_work=f"podwright slurm build --lint --into {places.library.parent}",
        )
    lua_text = (
        files(__package__)
        .joinpath("job_submit.lua")
        .read_text()
        .replace("@FOLDER@", str(config_folder))
        .replace("@REFUSES@", "true" if level == "refuse" else "false")
        .replace("@SOCKET@", str(places.socket))
        .replace("@LIBRARY@", str(places.library))
        .replace("@MS@", str(ANSWER_TIMEOUT_MS))
    )
    file_changes = FileChanges()
    script_path = _installed_script(config_folder) or _submit_script_path(config_folder)
    if script_path.exists() and not _is_lint_script(script_path):
        file_changes.moves.append((script_path, config_folder / _SITE_OWN_SCRIPT))
    file_changes.texts[script_path] = lua_text
    conf_text = read(slurm_conf)
    if "lua" not in settings(undone(conf_text, MARK)).get("jobsubmitplugins", "").split(","):
        current_plugins = settings(undone(conf_text, MARK)).get("jobsubmitplugins", "")
        wanted_settings = {"JobSubmitPlugins": joined(current_plugins, "lua")}
        file_changes.texts[slurm_conf] = changed(conf_text, wanted_settings, str(slurm_conf), MARK)
    return file_changes


def take_back(slurm_conf: Path) -> FileChanges:
    """The plan that restores every file byte for byte. Raises InvalidRequest."""
    file_changes = FileChanges()
    config_folder = slurm_conf.parent
    script_path = _installed_script(config_folder)
    if script_path and (config_folder / _SITE_OWN_SCRIPT).exists():
        file_changes.moves.append((config_folder / _SITE_OWN_SCRIPT, script_path))
    elif script_path:
        file_changes.texts[script_path] = None
    conf_text = read(slurm_conf)
    conf_lines = conf_text.splitlines()
    if any(line.startswith(OLD_LINE_MARK) and line.endswith(f"#{MARK}") for line in conf_lines):
        raise InvalidRequest(
            "native mode was set up after lint, and changed the same line",
            operation=f"take lint back out of {slurm_conf}",
            would_work="podwright slurm configure --undo first",
        )
    if f"#{MARK}" in conf_text:
        file_changes.texts[slurm_conf] = undone(conf_text, MARK)
    return file_changes


def _submit_script_path(config_folder: Path) -> Path:
    """Return where ours belongs: in place of the site's own, or behind the pods' if they have
    one.
    """
    submit_script = config_folder / _SUBMIT
    pods_have_script = submit_script.exists() and read(submit_script).startswith(_PODS_SCRIPT_START)
    return config_folder / _SCRIPT_BEHIND_PODS if pods_have_script else submit_script


def _is_lint_script(script_path: Path) -> bool:
    return read(script_path).startswith(_SCRIPT_HEADER)


def _installed_script(config_folder: Path) -> Path | None:
    """Return where ours is now: configuring pods after it moves it behind theirs."""
    candidate_paths = (config_folder / _SUBMIT, config_folder / _SCRIPT_BEHIND_PODS)
    return next((path for path in candidate_paths if path.exists() and _is_lint_script(path)), None)
