"""What `podwright doctor` finds out from the server: it, an allocation and a partition.

Asked only where one of them is named, and never started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from podwright.client import Client, LocalServers, ServerOptions, find_server
from podwright.errors import PodwrightError, Unavailable
from podwright.hosts import OK, PROBLEM, DoctorFinding
from podwright.wire import ReadyState


def ask_server(
    environ: Mapping[str, str], host: str, port: str, allocation: str, partition: str
) -> list[DoctorFinding]:
    """A finding for the server and each of the two that is named."""
    options = ServerOptions(host=host, port=port)
    try:
        found = find_server(options, environ, timeout=20.0, places=LocalServers(start=_none))
    except PodwrightError as error:
        return [DoctorFinding("server", "answers", PROBLEM, error.problem, error.would_work)]
    try:
        said = [
            DoctorFinding("server", "answers", OK, f"{found.address}, version {found.info.version}")
        ]
        if allocation:
            said.append(_allocation(found.client, allocation))
        if partition:
            said.append(_partition(found.client, partition))
    finally:
        found.client.close()
    return said


def _allocation(client: Client, name: str) -> DoctorFinding:
    try:
        there = {a.name: a for a in client.list_allocations()}
    except PodwrightError as error:
        return DoctorFinding("server", "allocation", PROBLEM, error.problem, error.would_work)
    if name in there:
        text = f"{name}: {there[name].free} of {there[name].size} devices are free"
        return DoctorFinding("server", "allocation", OK, text)
    known = ", ".join(sorted(there)) or "none"
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
    why = f"; {'; '.join(info.errors)}" if info.errors else ""
    return DoctorFinding("server", "partition", PROBLEM, text + why, f"vipu reset partition {name}")


def _none(folder: str, environ: Mapping[str, str], ready: Callable[[], bool]) -> bool:
    raise Unavailable("there is no server", would_work="Name it: --vipu-server-host NAME")
