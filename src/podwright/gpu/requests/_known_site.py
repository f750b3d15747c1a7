"""The site that a request is checked against: its files, this machine's Slurm, or assumed nodes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from podwright.errors import Unavailable
from podwright.gpu.requests._ask_twin import AskedSite, asked_site
from podwright.gpu.requests._assumed_nodes import assumed_site
from podwright.gpu.requests._read_site import Texts, read_site
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._sources import bundle, live
from podwright.gpu.requests._values import NodeHardware, SlurmCluster
from podwright.slurm.reader import SlurmConfig
from podwright.slurm.site.ask import has_controller
from podwright.slurm.site.releases import NEWEST, Version
from podwright.slurm.twin import find_slurm


class SiteChoice(Protocol):
    """The options that name a site. The nodes' numbers are None where they are left open.

    site_files: a folder with a site's files. devices: `confined` or `open`, in place of the site's
    ConstrainDevices. tasks: `bound` or `free`, in place of its TaskPlugin.
    """

    site_files: str | None
    cluster_nodes: int | None
    node_gpus: int | None
    node_sockets: int | None
    node_cores: int | None
    devices: str | None
    tasks: str | None


class KnownSite(NamedTuple):
    """The site that a request is checked against.

    assumed: whether the nodes come from the options and not from a site. live: whether the site is
    that of this machine's own Slurm.
    """

    target: AskedSite
    version: Version
    assumed: bool = False
    live: bool = False


def known_site(request: SlurmRequest, choice: SiteChoice) -> KnownSite:
    """Return the site of the files, or of this machine's Slurm, or assumed nodes.

    Raises Unavailable when there is a Slurm that does not answer all questions.
    """
    texts: Texts | None
    nodes_given = (
        choice.cluster_nodes,
        choice.node_gpus,
        choice.node_sockets,
        choice.node_cores,
    )
    if choice.site_files:
        texts = bundle(Path(choice.site_files))
    elif any(nodes_given):
        texts = None
    else:
        texts = live()
        if not (texts and texts.nodes and texts.partitions) and has_controller():
            raise Unavailable(
                "Slurm's controller did not answer, so what it would give is not known",
                would_work="Try again, hand over --site-files, or describe nodes: --node-gpus 8",
            )
    if texts is None:
        return _assumed(request, choice)
    texts = _with_tasks(texts, choice)
    site = _with_devices(read_site(texts), choice)
    if not site.nodes:
        return _assumed(request, choice)
    version = SlurmConfig(texts.config).optional("SLURM_VERSION")
    asks_slurm = not choice.site_files
    site_answer = asked_site(texts, site, live=asks_slurm)
    return KnownSite(
        site_answer,
        SlurmConfig(texts.config).version if version else NEWEST,
        live=asks_slurm,
    )


def _assumed(request: SlurmRequest, choice: SiteChoice) -> KnownSite:
    """Return the nodes of the options, with common values for what these leave open.

    The release is that of the Slurm on this machine, or the newest.
    """

    sockets = choice.node_sockets or 2
    shape = NodeHardware(
        nodes=choice.cluster_nodes or max(64, request.max_nodes or 0),
        sockets=sockets,
        cores_per_socket=max(1, (choice.node_cores or 64) // sockets),
        gpus=choice.node_gpus or 8,
        confined=choice.devices != "open",
        affinity=choice.tasks == "bound",
    )
    site, files = assumed_site(request, shape)
    described = f"about {node_count(shape.nodes)} as assumed, idle"
    slurm = find_slurm()
    version = slurm.version if slurm else NEWEST
    return KnownSite(AskedSite(site, files, None, described), version, assumed=True)


def _with_tasks(texts: Texts, choice: SiteChoice) -> Texts:
    """Return the site with --task-cpus in place of its TaskPlugin."""

    if not choice.tasks:
        return texts
    plugin = "task/affinity" if choice.tasks == "bound" else "task/none"
    config = re.sub(r"(?m)^(TaskPlugin\s*=).*", rf"\1 {plugin}", texts.config)
    return replace(texts, config=config)


def _with_devices(site: SlurmCluster, choice: SiteChoice) -> SlurmCluster:
    """Return the site with --devices in place of its ConstrainDevices."""

    if not choice.devices:
        return site
    confined = choice.devices == "confined"
    return replace(site, shapes=tuple(replace(shape, confined=confined) for shape in site.shapes))


def node_count(count: int) -> str:
    """Return a number of nodes with its noun."""
    return f"{count} node{'' if count == 1 else 's'}"
