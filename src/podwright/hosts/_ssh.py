"""Words on other hosts through the system's own ssh, so that users' configuration counts.

Nothing is ever asked: a launch has no one to answer. What ssh says when it fails is turned into
what stands in the way and what to type.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from podwright.hosts._local import find_program

#: Seconds that a host has to answer.
CONNECT_TIMEOUT = 8

_SAID = (
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
        "Put it there, at the same place: rsync -a {prefix}/ {host}:{prefix}/",
    ),
)


def ssh_command(
    host: str, words: Sequence[str], environ: Mapping[str, str], *, identity: str = ""
) -> list[str] | None:
    """The command that runs words on a host, with our standard streams; None without an ssh.

    identity: a key to try before those of the user's configuration.
    """
    program = find_program("ssh", environ)
    if program is None:
        return None
    options = [
        "-T",
        "-x",
        "-oBatchMode=yes",
        f"-oConnectTimeout={CONNECT_TIMEOUT}",
        "-oControlMaster=no",
        "-oForwardAgent=no",
        "-oClearAllForwardings=yes",
        *([f"-i{identity}"] if identity else ()),
    ]
    return [program, *options, "--", host, f"exec {shlex.join(words)}"]


def explain(host: str, said: str, code: int | None, *, see: str = "") -> tuple[str, str]:
    """Why a host could not be had, from what ssh or the shell there said: problem, what to do.

    see: what to do about what nobody knows.
    """
    see = see or f"See: ssh {host} true"
    for pattern, problem, hint in _SAID:
        if re.search(pattern, said):
            return problem, hint.format(host=host, prefix=sys.prefix)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if lines:
        return lines[-1][:300], see
    if code is None:
        return "it does not answer in time", see
    return f"the way to it closed at once (exit code {code})", see
