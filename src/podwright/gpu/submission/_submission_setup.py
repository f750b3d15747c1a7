"""Plans lint at submission: our job_submit.lua before the site's own, and a line in slurm.conf.

Where Podwright's pods have a job_submit.lua, ours goes behind it, in the place of the site's own.
It has its own mark, so that it is installed and removed independently of the GPU configuration.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.site.changes import FileChanges
from podwright.slurm.site.edit import WAS, changed, joined, settings, undone
from podwright.slurm.site.files import read

MARK: Final = "podwright-lint"
LEVELS: Final = ("warn", "refuse", "off")
#: The time in milliseconds that a submission waits for the service.
PATIENCE: Final = 20
_FIRST: Final = "-- Podwright reads job scripts at submission"
_PODS: Final = "-- Podwright's part of job_submit"
_SUBMIT: Final = "job_submit.lua"
_OWN: Final = "job_submit.own.lua"
_BEHIND: Final = "job_submit.site.lua"


class Places(NamedTuple):
    """The paths of slurm.conf, of the compiled library, and of the service's socket."""

    slurm_conf: Path
    library: Path
    socket: Path


def configure(places: Places, level: str) -> FileChanges:
    """The plan for `warn` or `refuse`. Raises InvalidRequest where it cannot work."""
    conf, etc = places.slurm_conf, places.slurm_conf.parent
    if not places.library.exists():
        raise InvalidRequest(
            f"{places.library} is not there: job_submit asks by it",
            operation=f"--lint={level}",
            would_work=f"podwright slurm build --lint --into {places.library.parent}",
        )
    text = (
        files(__package__)
        .joinpath("job_submit.lua")
        .read_text()
        .replace("@FOLDER@", str(etc))
        .replace("@REFUSES@", "true" if level == "refuse" else "false")
        .replace("@SOCKET@", str(places.socket))
        .replace("@LIBRARY@", str(places.library))
        .replace("@MS@", str(PATIENCE))
    )
    plan = FileChanges()
    script = _installed(etc) or _place(etc)
    if script.exists() and not _is_lint(script):
        plan.moves.append((script, etc / _OWN))
    plan.texts[script] = text
    current = read(conf)
    if "lua" not in settings(undone(current, MARK)).get("jobsubmitplugins", "").split(","):
        now = settings(undone(current, MARK)).get("jobsubmitplugins", "")
        wanted = {"JobSubmitPlugins": joined(now, "lua")}
        plan.texts[conf] = changed(current, wanted, str(conf), MARK)
    return plan


def take_back(conf: Path) -> FileChanges:
    """The plan that restores every file byte for byte. Raises InvalidRequest."""
    plan = FileChanges()
    etc = conf.parent
    script = _installed(etc)
    if script and (etc / _OWN).exists():
        plan.moves.append((etc / _OWN, script))
    elif script:
        plan.texts[script] = None
    text = read(conf)
    lines = text.splitlines()
    if any(line.startswith(WAS) and line.endswith(f"#{MARK}") for line in lines):
        raise InvalidRequest(
            "native mode was set up after lint, and changed the same line",
            operation=f"take lint back out of {conf}",
            would_work="podwright slurm configure --undo first",
        )
    if f"#{MARK}" in text:
        plan.texts[conf] = undone(text, MARK)
    return plan


def _place(etc: Path) -> Path:
    """Return where ours belongs: in place of the site's own, or behind the pods' if they have
    one.
    """
    first = etc / _SUBMIT
    pods = first.exists() and read(first).startswith(_PODS)
    return etc / _BEHIND if pods else first


def _is_lint(script: Path) -> bool:
    return read(script).startswith(_FIRST)


def _installed(etc: Path) -> Path | None:
    """Return where ours is now: configuring pods after it moves it behind theirs."""
    paths = (etc / _SUBMIT, etc / _BEHIND)
    return next((path for path in paths if path.exists() and _is_lint(path)), None)
