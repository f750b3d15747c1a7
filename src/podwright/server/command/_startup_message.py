"""What a server that has started says of itself."""

from __future__ import annotations

import os

from podwright._version import __version__
from podwright.hosts._state_folders import state_folder
from podwright.server._server import Server
from podwright.server._server_process import ServingOptions
from podwright.server.machines._served_hardware import ServedHardware
from podwright.store import shown_place


def ready_lines(options: ServingOptions, server: Server, hardware: ServedHardware) -> list[str]:
    """Return one to four lines: what is served, and at which address."""
    lines = []
    machine_store = state_folder(system=True) / "vipu-server.db"
    if options.listen.private_folder and os.geteuid() == 0 and machine_store.exists():
        lines.append(
            f"This is root's own server. This machine's store is {machine_store}: --system"
        )
    if hardware.nothing_found:
        simulated_pods = ", ".join(cluster.name.upper() for cluster in hardware.clusters)
        lines.append(f"No accelerators found: serving a simulated {simulated_pods}")
    served_clusters = ", ".join(
        f"{cluster.name} ({cluster.size} {cluster.family.device_noun}s"
        f"{', SIMULATED' if cluster.simulated else ''})"
        for cluster in server.controller.clusters
    )
    served_clusters = served_clusters or "no cluster yet (vipu-admin create cluster)"
    shown_host = f"[{server.host}]" if ":" in (server.host or "") else server.host
    if server.web_port:
        lines.append(f"page and metrics on {server.page}")
    lines.append(
        f"vipu-server {__version__}: {served_clusters} on {shown_host}:{server.port} and "
        f"{options.socket}, kept in {shown_place(options.storage)}"
    )
    return lines
