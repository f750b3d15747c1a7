"""Keeps unhealthy nodes from jobs: one script on every node, which Slurm runs as
HealthCheckProgram, Prolog and Epilog. The site's own programs in these places run first, as before.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.gpu.configure._edit_conf_lines import OWN_LINE_SUFFIX
from podwright.gpu.health import STAYS_DRAINED
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.edit import joined
from podwright.slurm.site.files import read

_SCRIPT_HEADER = (
    f"# Checks of this node, by podwright slurm configure --gpus --health{OWN_LINE_SUFFIX}\n"
)
#: The PATH of the script, since Slurm sets neither PATH nor SLURM_CONF. It fits a Debian, an RHEL
#: and a local Slurm.
SCRIPT_PATH_VARIABLE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHECK_TIMEOUT_S = 120  # the limit of a check in seconds, whatever hangs
#: Slurm drains a node whose hook fails, however many nodes are drained already. So the script fails
#: only on our explicit exit code, and not if podwright is missing, broken, or does not answer.
_SCRIPT_ENDING = f"""\
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
    """path: of the script. podwright: the command on the nodes. act: `warn` or `drain`.

    clean: what to do about GPUs that ended jobs hold: `warn`, `drain`, or `end`, which also ends
    what holds them. Empty for either: that check is not run.
    """

    path: str
    podwright: str
    act: str
    clean: str = ""

    @property
    def script(self) -> Path:
        """The path to which the script is written."""
        return Path(self.path)


def settings_of(gate_script: GateScript, site_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that slurm.conf needs for the gate."""
    parameters = joined(site_settings.get("schedulerparameters", ""), "nohold_on_prolog_fail")
    return {
        "HealthCheckProgram": gate_script.path,
        "HealthCheckInterval": site_settings.get("healthcheckinterval", "").lstrip("0") or "300",
        "HealthCheckNodeState": site_settings.get("healthchecknodestate", "ANY"),
        "Prolog": gate_script.path,
        "Epilog": gate_script.path,
        # Otherwise a job that an unhealthy node refused would be held and not restarted elsewhere.
        "SchedulerParameters": parameters,
    }


def script(gate_script: GateScript, conf_path: Path, site_settings: Mapping[str, str]) -> str:
    """Return the text of the script. site_settings: the site's own settings, without ours."""
    script_lines = [
        "#!/bin/sh\n",
        _SCRIPT_HEADER,
        f"PATH={SCRIPT_PATH_VARIABLE}\n",
        f"SLURM_CONF={shlex.quote(str(conf_path))}\n",
    ]
    script_lines += ["export PATH SLURM_CONF\n", 'case "${SLURM_SCRIPT_CONTEXT-}" in\n']
    for context, setting in _HOOKS.items():
        script_lines.append(f"{context})\n{first(site_settings.get(setting, ''), 'exit')}    ;;\n")
    script_lines.append(
        f"*)\n{first(site_settings.get('healthcheckprogram', ''), ':')}    ;;\nesac\n"
    )
    return "".join([*script_lines, *_check_lines(gate_script), _SCRIPT_ENDING])


def _check_lines(gate_script: GateScript) -> list[str]:
    """Shell code that sets `code`. After a node is drained for one check, the other is not run."""
    limit = f"timeout --foreground -k 5 {_CHECK_TIMEOUT_S} {shlex.quote(gate_script.podwright)}"
    health = f"{limit} node health --slurm --act={gate_script.act}"
    clean = f"{limit} node clean --slurm --act={gate_script.clean.replace('end', 'drain')}"
    clean += " --end" if gate_script.clean == "end" else ""
    if not gate_script.act:
        return [f"{clean}\n", "code=$?\n"]
    lines = [f"{health}\n", "code=$?\n"]
    if gate_script.clean:
        lines.append(f'[ "$code" = {STAYS_DRAINED} ] || {clean} || code=$?\n')
    return lines


def first(site_programs: str, failure_command: str) -> str:
    """Return shell code that runs the site's program, or a pattern of several, as Slurm takes it.

    failure_command: the shell code that handles a failure.
    """
    if not site_programs:
        return "    :\n"
    text = " ".join(_pattern(program) for program in site_programs.split(","))
    return (
        f"    for each in {text}; do\n"
        f'        [ ! -x "$each" ] || "$each" || {failure_command}\n'
        "    done\n"
    )


def _pattern(program_pattern: str) -> str:
    """Quote a text, but leave the characters of a pattern."""
    return "".join(
        letter if letter.isalnum() or letter in "/._-+*?[]" else shlex.quote(letter)
        for letter in program_pattern.strip()
    )


def notes(gate_script: GateScript, site_settings: Mapping[str, str]) -> list[str]:
    """Return notes about the gate for the administrator."""
    note_lines = [f"{gate_script.path} and {gate_script.podwright} must be on every node"]
    if "warn" in (gate_script.act, gate_script.clean):
        note_lines.append(
            "nodes are not drained yet: slurmd's log says what would be; then --health=drain or "
            "--clean=drain"
        )
    site_hooks = [
        setting
        for setting in ("prolog", "epilog", "healthcheckprogram")
        if site_settings.get(setting)
    ]
    if site_hooks:
        programs_text = ", ".join(site_settings[setting] for setting in site_hooks)
        note_lines.append(f"the site's own {programs_text} runs first, as before")
    return note_lines


def known(conf_path: Path) -> list[Path]:
    """Return our gate scripts that this slurm.conf names."""
    if not conf_path.exists():
        return []
    program_path = settings(read(conf_path)).get("healthcheckprogram", "")
    script_path = Path(program_path)
    is_ours = program_path and script_path.is_file() and _SCRIPT_HEADER in read(script_path)
    return [script_path] if is_ours else []
