"""The ways of scheduling that Graphcore documented, beside native mode. Each answers the same
hooks.
"""

from podwright.guests.shared import ThreadedServer
from podwright.guests.slurm.service import Site, Work, native_work
from podwright.guests.slurm.ways._host_mapping_way import HostMapping
from podwright.guests.slurm.ways._shared_partition_way import Shared, SharedBook, SharedService
from podwright.guests.slurm.ways._static_partition_way import Static
from podwright.slurm.site.commands import Slurm

__all__ = [
    "HostMapping",
    "Shared",
    "SharedBook",
    "SharedService",
    "Static",
    "work",
]


def work(site: Site, server: ThreadedServer, slurm: Slurm) -> Work:
    """Return the work that a site's mode does for its hooks."""
    if site.mode == "host-mapping":
        return HostMapping(site, server, slurm)
    if site.mode == "static":
        return Static(site, server, slurm)
    if site.mode == "shared":
        return Shared(SharedService(site, server, slurm))
    return native_work(site, server, slurm)
