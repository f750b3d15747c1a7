"""Keeps unhealthy nodes from jobs: one script on every node, which Slurm runs as
HealthCheckProgram, Prolog and Epilog. The site's own programs in these places run first, as before.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.gpu.configure._lines import OURS
from podwright.gpu.health import STAYS_DRAINED
from podwright.slurm.site.edit import joined, settings
from podwright.slurm.site.files import read

_OURS = f"# Checks of this node, by podwright slurm configure --gpus --health{OURS}\n"
#: The PATH of the script, since Slurm sets neither PATH nor SLURM_CONF. It fits a Debian, an RHEL
#: and a local Slurm.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST = 120  # the limit of a check in seconds, whatever hangs
#: Slurm drains a node whose hook fails, however many nodes are drained already. So the script fails
#: only on our explicit exit code, and not if podwright is missing, broken, or does not answer.
_ENDING = f"""\
code=$?
case "${{SLURM_SCRIPT_CONTEXT-}}" in
prolog_slurmd)
    [ "$code" = {STAYS_DRAINED} ] || exit 0
    ;;
epilog_slurmd)
    exit 0
    ;;
esac
exit "$code"
"""
_HOOKS = {"prolog_slurmd": "prolog", "epilog_slurmd": "epilog"}


class GateScript(NamedTuple):
    """path: of the script. podwright: the command on the nodes. act: `warn` or `drain`."""

    path: str
    podwright: str
    act: str

    @property
    def script(self) -> Path:
        """The path to which the script is written."""
        return Path(self.path)


def settings_of(gate: GateScript, now: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that slurm.conf needs for the gate."""
    parameters = joined(now.get("schedulerparameters", ""), "nohold_on_prolog_fail")
    return {
        "HealthCheckProgram": gate.path,
        "HealthCheckInterval": now.get("healthcheckinterval", "").lstrip("0") or "300",
        "HealthCheckNodeState": now.get("healthchecknodestate", "ANY"),
        "Prolog": gate.path,
        "Epilog": gate.path,
        # Otherwise a job that an unhealthy node refused would be held and not restarted elsewhere.
        "SchedulerParameters": parameters,
    }


def script(gate: GateScript, conf: Path, now: Mapping[str, str]) -> str:
    """Return the text of the script. now: the site's own settings, without ours."""
    lines = ["#!/bin/sh\n", _OURS, f"PATH={PATH}\n", f"SLURM_CONF={shlex.quote(str(conf))}\n"]
    lines += ["export PATH SLURM_CONF\n", 'case "${SLURM_SCRIPT_CONTEXT-}" in\n']
    for context, key in _HOOKS.items():
        lines.append(f"{context})\n{first(now.get(key, ''), 'exit')}    ;;\n")
    lines.append(f"*)\n{first(now.get('healthcheckprogram', ''), ':')}    ;;\nesac\n")
    command = f"{shlex.quote(gate.podwright)} node health --slurm --act={gate.act}"
    return "".join([*lines, f"timeout --foreground -k 5 {_LONGEST} {command}\n", _ENDING])


def first(theirs: str, failed: str) -> str:
    """Return shell code that runs the site's program, or a pattern of several, as Slurm takes it.

    failed: the shell code that handles a failure.
    """
    if not theirs:
        return "    :\n"
    words = " ".join(_pattern(word) for word in theirs.split(","))
    return (
        f'    for each in {words}; do\n        [ ! -x "$each" ] || "$each" || {failed}\n    done\n'
    )


def _pattern(word: str) -> str:
    """Quote a text, but leave the characters of a pattern."""
    return "".join(
        letter if letter.isalnum() or letter in "/._-+*?[]" else shlex.quote(letter)
        for letter in word.strip()
    )


def notes(gate: GateScript, now: Mapping[str, str]) -> list[str]:
    """Return notes about the gate for the administrator."""
    out = [f"{gate.path} and {gate.podwright} must be on every node"]
    if gate.act == "warn":
        out.append(
            "nodes are not drained yet: slurmd's log says what would be; then --health=drain"
        )
    theirs = [key for key in ("prolog", "epilog", "healthcheckprogram") if now.get(key)]
    if theirs:
        out.append(f"the site's own {', '.join(now[key] for key in theirs)} runs first, as before")
    return out


def known(conf: Path) -> list[Path]:
    """Return our gate scripts that this slurm.conf names."""
    if not conf.exists():
        return []
    program = settings(read(conf)).get("healthcheckprogram", "")
    path = Path(program)
    ours = program and path.is_file() and _OURS in read(path)
    return [path] if ours else []
