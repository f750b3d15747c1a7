"""The findings of `podwright doctor` about the server, an allocation and a partition.

The server is asked only when one of them is named, and it is never started.
"""

from __future__ import annotations

from collections.abc import Mapping

from podwright.client import Client, LocalServers, ServerOptions, find_server
from podwright.errors import PodwrightError, Unavailable
from podwright.hosts import OK, PROBLEM, WARNING, DoctorFinding
from podwright.wire import ReadyState


def ask_server(
    environ: Mapping[str, str], host: str, port: str, allocation: str, partition: str
) -> list[DoctorFinding]:
    """Return a finding for the server, and one each for the named allocation and partition."""
    options = ServerOptions(host=host, port=port)
    places = LocalServers.running(
        Unavailable("there is no server", would_work="Name it: --vipu-server-host NAME")
    )
    try:
        server = find_server(options, environ, timeout=20.0, places=places)
    except PodwrightError as error:
        return [DoctorFinding("server", "answers", PROBLEM, error.problem, error.would_work)]
    try:
        findings = [
            DoctorFinding(
                "server", "answers", OK, f"{server.address}, version {server.info.version}"
            )
        ]
        if server.info.fabric:
            findings.append(_fabric(server.info.fabric))
        if allocation:
            findings.append(_allocation(server.client, allocation))
        if partition:
            findings.append(_partition(server.client, partition))
    finally:
        server.client.close()
    return findings


def _fabric(kind: str) -> DoctorFinding:
    text = (
        f"{kind} takes no epoch: a request that a paused server sent before another one took over "
        "can still take effect there"
    )
    todo = (
        "before a second server takes over, end the first or cut its network off from the fabric's "
        "manager"
    )
    return DoctorFinding("server", "fabric", WARNING, text, todo)


def _allocation(client: Client, name: str) -> DoctorFinding:
    try:
        allocations = {a.name: a for a in client.list_allocations()}
    except PodwrightError as error:
        return DoctorFinding("server", "allocation", PROBLEM, error.problem, error.would_work)
    if name in allocations:
        text = f"{name}: {allocations[name].free} of {allocations[name].size} devices are free"
        return DoctorFinding("server", "allocation", OK, text)
    known = ", ".join(sorted(allocations)) or "none"
    text = f"there is no allocation {name}; there are: {known}"
    return DoctorFinding("server", "allocation", PROBLEM, text, "vipu list allocations")


def _partition(client: Client, name: str) -> DoctorFinding:
    try:
        info = client.get_partition(name)
    except PodwrightError as error:
        return DoctorFinding("server", "partition", PROBLEM, error.problem, error.would_work)
    text = f"{name}: {info.size} devices, {info.ready_state.value}"
    if info.ready_state is ReadyState.ACTIVE:
        return DoctorFinding("server", "partition", OK, text)
    reason = f"; {'; '.join(info.errors)}" if info.errors else ""
    return DoctorFinding(
        "server", "partition", PROBLEM, text + reason, f"vipu reset partition {name}"
    )
