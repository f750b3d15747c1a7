"""All findings of `podwright doctor`, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podwright.doctor._doctor_machine import site_findings
from podwright.doctor._doctor_server import ask_server
from podwright.errors import InvalidRequest
from podwright.ground.tables import table
from podwright.hosts import BadHostList, DoctorFinding, examine, expand, read_hosts

#: What names the server's port where no option does: a launch's, then that of V-IPU's commands.
_PORT_VARIABLES = "IPUOF_VIPU_API_PORT", "VIPU_CLI_API_PORT"


class Subject(NamedTuple):
    """What is examined. An empty text: what the environment names, if anything.

    hosts: a list such as n[1-4],m2. hostfile: a file with a host or a range on each line. Without
    both, this machine is examined. server_host, server_port: the server that instances must reach.
    allocation, partition: names that this server must have.
    """

    hosts: str = ""
    hostfile: str = ""
    server_host: str = ""
    server_port: int = 0
    allocation: str = ""
    partition: str = ""


def diagnose(subject: Subject, environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Return a finding for each check. Raises InvalidRequest for what cannot be read."""
    host = subject.server_host or environ.get("IPUOF_VIPU_API_HOST", "")
    port = subject.server_port or next(filter(None, map(environ.get, _PORT_VARIABLES)), 8090)
    hosts = _subject_hosts(subject)
    try:
        port_number = int(port)
    except ValueError:
        variable = next(name for name in _PORT_VARIABLES if environ.get(name) == port)
        raise InvalidRequest(f"{variable}={port!r} is not a port") from None
    findings = examine(hosts, environ, server=(host, port_number) if host else None)
    partition = subject.partition or environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    if host or partition or subject.allocation:
        server_port_text = str(port_number) if host else ""
        return findings + ask_server(environ, host, server_port_text, subject.allocation, partition)
    if not (subject.hosts or subject.hostfile):
        return findings + site_findings(environ)
    return findings


def findings_text(findings: Sequence[DoctorFinding]) -> str:
    """Return the findings as a table, and below it what to type."""
    table_text = table(("Host", "Check", "Result", "Found"), [finding[:4] for finding in findings])
    lines = [
        f"  {advised_finding.host}, {advised_finding.check}: {advised_finding.todo}"
        for advised_finding in findings
        if advised_finding.todo
    ]
    return "\n".join([table_text, *(["", "What to do:", *lines] if lines else [])])


def _subject_hosts(subject: Subject) -> Sequence[str]:
    try:
        if subject.hosts:
            return expand(subject.hosts)
        if not subject.hostfile:
            return ("localhost",)
        with open(subject.hostfile, encoding="utf-8", errors="replace") as file:
            return read_hosts(file.read(1 << 22), subject.hostfile)
    except BadHostList as error:
        raise InvalidRequest(str(error)) from None
    except OSError as error:
        raise InvalidRequest(f"{subject.hostfile} cannot be read: {error.strerror}") from None
