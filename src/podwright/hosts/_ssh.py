"""Running commands on other hosts through the system's ssh, with users' own configuration.

ssh never prompts, since a launch has nobody to answer. A message of a failing ssh is turned into a
problem and what to do about it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from podwright.hosts._local_host_facts import find_program

#: Seconds within which a host must answer.
SSH_CONNECT_TIMEOUT_S = 8

_SSH_PROBLEM_PATTERNS = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed since the last time",
        "If that is right: ssh-keygen -R {host}; ssh {host} once",
    ),
    (
        r"Host key verification failed|No .* host key is known",
        "its host key is not known here",
        "Confirm it once: ssh {host}",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "it refuses the key",
        "Put your key there: ssh-copy-id {host}",
    ),
    (
        r"Could not resolve hostname",
        "there is no host of that name",
        "Check the name, or add it to /etc/hosts",
    ),
    (
        r"Connection timed out|No route to host|Network is unreachable|Host is down",
        "it does not answer",
        "Check that it is up: ping {host}",
    ),
    (
        r"Connection refused",
        "no ssh server answers there",
        "Start sshd on it",
    ),
    (
        r"No module named .?podwright",
        "Podwright is not installed there",
        "Put it there, at the same place: rsync -a {prefix}/ {host}:{prefix}/",
    ),
    (
        r"[Pp]ython\S*: .*(not found|No such file|Permission denied)"
        r"|(not found|No such file).*[Pp]ython",
        "this host's Python is not there",
        "{python}",
    ),
)


def ssh_command(
    host: str, arguments: Sequence[str], environ: Mapping[str, str], *, identity_file: str = ""
) -> list[str] | None:
    """Return the command that runs `arguments` on a host with this process's streams, or None.

    None: there is no ssh. identity_file: a key to try before those of the user's configuration.
    """
    ssh_path = find_program("ssh", environ)
    if ssh_path is None:
        return None
    ssh_options = [
        "-T",
        "-x",
        "-oBatchMode=yes",
        f"-oConnectTimeout={SSH_CONNECT_TIMEOUT_S}",
        "-oControlMaster=no",
        "-oForwardAgent=no",
        "-oClearAllForwardings=yes",
        *([f"-i{identity_file}"] if identity_file else ()),
    ]
    return [ssh_path, *ssh_options, "--", host, f"exec {shlex.join(arguments)}"]


def explain(host: str, output: str, exit_code: int | None, *, see: str = "") -> tuple[str, str]:
    """Return why a host could not be reached, from the output of ssh or of the remote shell.

    The result is the problem and what to do. see: what to do about an unknown problem.
    """
    see = see or f"See: ssh {host} true"
    for pattern, problem, hint in _SSH_PROBLEM_PATTERNS:
        if re.search(pattern, output):
            rsync_command = f"rsync -a {sys.prefix}/ {host}:{sys.prefix}/"
            python_hint = f"Put it there, at the same place: {rsync_command}"
            base_python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
            if sys.prefix != sys.base_prefix:  # a virtual environment links to another Python
                python_hint = (
                    f"Install the Python of this environment there, as {base_python}. "
                    f"Then copy the environment: {rsync_command}"
                )
            return problem, hint.format(host=host, prefix=sys.prefix, python=python_hint)
    output_lines = [line.strip() for line in output.splitlines() if line.strip()]
    if output_lines:
        return output_lines[-1][:300], see
    if exit_code is None:
        return "it does not answer in time", see
    return f"the way to it closed at once (exit code {exit_code})", see
