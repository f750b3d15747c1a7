"""The findings of `podwright doctor` about the server, an allocation and a partition.

The server is asked only when one of them is named, and it is never started.
"""

from __future__ import annotations

from collections.abc import Mapping

from podwright.client import Client, LocalServers, ServerOptions, find_server
from podwright.errors import PodwrightError, Unavailable
from podwright.ground.plural import counted
from podwright.hosts import OK, PROBLEM, WARNING, DoctorFinding
from podwright.wire import ReadyState, ServerInfo


def ask_server(
    environ: Mapping[str, str], host: str, port: str, allocation: str, partition: str
) -> list[DoctorFinding]:
    """Return a finding for the server, and one each for the named allocation and partition."""
    options = ServerOptions(host=host, port=port)
    local_servers = LocalServers.running(
        Unavailable("there is no server", would_work="Name it: --vipu-server-host NAME")
    )
    try:
        server = find_server(options, environ, timeout=20.0, local_servers=local_servers)
    except PodwrightError as error:
        return [DoctorFinding("server", "answers", PROBLEM, error.problem, error.would_work)]
    try:
        findings = [
            DoctorFinding(
                "server", "answers", OK, f"{server.address}, version {server.info.version}"
            )
        ]
        if server.info.fabric:
            findings.append(_fabric_reading(server.info))
            findings.append(_fabric_finding(server.info.fabric))
        if allocation:
            findings.append(_allocation_finding(server.client, allocation))
        if partition:
            findings.append(_partition_finding(server.client, partition))
    finally:
        server.client.close()
    return findings


def _fabric_reading(info: ServerInfo) -> DoctorFinding:
    """Tell how old the last comparison of the fabric with the server's partitions is."""
    age = f"it was last read {info.fabric_age:.0f} s ago" if info.fabric_age >= 0 else "never read"
    if info.fabric_problem:
        return DoctorFinding(
            "server",
            "fabric read",
            PROBLEM,
            f"{info.fabric} cannot be read ({age}): {info.fabric_problem}",
            f"see that {info.fabric} runs and answers the server",
        )
    if info.fabric_age < 0:
        return DoctorFinding("server", "fabric read", WARNING, f"{info.fabric}: {age}", "")
    return DoctorFinding(
        "server", "fabric read", OK, f"{info.fabric}: {age}, and partitions are as they should be"
    )


def _fabric_finding(fabric_kind: str) -> DoctorFinding:
    text = (
        f"{fabric_kind} takes no epoch: a request that a paused server sent before another one "
        "took over can still take effect there"
    )
    advice = (
        "before a second server takes over, end the first or cut its network off from the fabric's "
        "manager"
    )
    return DoctorFinding("server", "fabric", WARNING, text, advice)


def _allocation_finding(client: Client, allocation_name: str) -> DoctorFinding:
    try:
        allocations = {allocation.name: allocation for allocation in client.list_allocations()}
    except PodwrightError as error:
        return DoctorFinding("server", "allocation", PROBLEM, error.problem, error.would_work)
    if allocation_name in allocations:
        text = (
            f"{allocation_name}: {allocations[allocation_name].free} of "
            f"{allocations[allocation_name].size} devices are free"
        )
        return DoctorFinding("server", "allocation", OK, text)
    known_names = ", ".join(sorted(allocations)) or "none"
    text = f"there is no allocation {allocation_name}; there are: {known_names}"
    return DoctorFinding("server", "allocation", PROBLEM, text, "vipu list allocations")


def _partition_finding(client: Client, partition_name: str) -> DoctorFinding:
    try:
        partition_info = client.get_partition(partition_name)
    except PodwrightError as error:
        return DoctorFinding("server", "partition", PROBLEM, error.problem, error.would_work)
    size_text = counted(partition_info.size, "device")
    finding_text = f"{partition_name}: {size_text}, {partition_info.ready_state.value}"
    if partition_info.ready_state is ReadyState.ACTIVE:
        return DoctorFinding("server", "partition", OK, finding_text)
    errors_text = f"; {'; '.join(partition_info.errors)}" if partition_info.errors else ""
    return DoctorFinding(
        "server",
        "partition",
        PROBLEM,
        finding_text + errors_text,
        f"vipu reset partition {partition_name}",
    )
