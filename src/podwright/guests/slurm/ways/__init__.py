"""The ways of scheduling that Graphcore documented, beside native mode. Each answers the same
hooks.
"""

from podwright.guests.shared import ThreadedServer
from podwright.guests.slurm.service import NativeMode, Site
from podwright.guests.slurm.service._hook_calls import JobCalls
from podwright.guests.slurm.ways._host_mapping_way import HostMapping
from podwright.guests.slurm.ways._shared_partition_way import SharedBook, SharedService
from podwright.guests.slurm.ways._static_partition_way import Static
from podwright.slurm.site.commands import Slurm

__all__ = [
    "HostMapping",
    "SharedBook",
    "SharedService",
    "Static",
    "work",
]


def work(site: Site, server: ThreadedServer, slurm: Slurm) -> JobCalls:
    """Return the calls of a site's way of scheduling."""
    if site.mode == "host-mapping":
        return HostMapping(site, server, slurm)
    if site.mode == "static":
        return Static(site, server, slurm)
    return (SharedService if site.mode == "shared" else NativeMode)(site, server, slurm)
