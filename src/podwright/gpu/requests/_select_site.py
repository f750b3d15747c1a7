"""The site that a request is checked against: its files, this machine's Slurm, or assumed nodes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from podwright.errors import Unavailable
from podwright.gpu.requests._ask_twin import AskedSite, asked_site
from podwright.gpu.requests._assumed_nodes import assumed_request, assumed_site, larger
from podwright.gpu.requests._collect_site_texts import bundle, live
from podwright.gpu.requests._read_site import Texts, read_site
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import NodeHardware, SlurmCluster
from podwright.slurm.reader import SlurmConfig
from podwright.slurm.site.blocking_commands import has_controller
from podwright.slurm.site.releases import NEWEST_RELEASE, SlurmVersion, parse_version
from podwright.slurm.twin import find_slurm


class SiteChoice(Protocol):
    """The options that name a site. The nodes' numbers are None where they are left open.

    site_files: a folder with a site's files, or its slurm.conf. slurm_version: that of the Slurm
    that reads slurm.conf. devices: `confined` or `open`, in place of the site's
    ConstrainDevices. tasks: `bound` or `free`, in place of its TaskPlugin.
    """

    site_files: str | None
    cluster_nodes: int | None
    node_gpus: int | None
    node_sockets: int | None
    node_cores: int | None
    devices: str | None
    tasks: str | None
    slurm_version: str | None


class KnownSite(NamedTuple):
    """The site that a request is checked against.

    assumed: whether the nodes come from the options and not from a site. live: whether the site is
    that of this machine's own Slurm.
    """

    target: AskedSite
    version: SlurmVersion
    assumed: bool = False
    live: bool = False


def known_site(request: SlurmRequest, site_choice: SiteChoice) -> KnownSite:
    """Return the site of the files, or of this machine's Slurm, or assumed nodes.

    Raises Unavailable when there is a Slurm that does not answer all questions.
    """
    site_texts: Texts | None
    node_options = (
        site_choice.cluster_nodes,
        site_choice.node_gpus,
        site_choice.node_sockets,
        site_choice.node_cores,
    )
    if site_choice.site_files:
        named_version = site_choice.slurm_version
        site_texts = bundle(
            Path(site_choice.site_files), parse_version(named_version) if named_version else None
        )
    elif any(node_options):
        site_texts = None
    else:
        site_texts = live()
        if not (site_texts and site_texts.nodes and site_texts.partitions) and has_controller():
            raise Unavailable(
                "Slurm's controller did not answer, so what it would give is not known",
                would_work="Try again, hand over --site-files, or describe nodes: --node-gpus 8",
            )
    if site_texts is None:
        return _known_assumed_site(request, site_choice)
    site_texts = _with_task_plugin(site_texts, site_choice)
    site = _with_confinement(read_site(site_texts), site_choice)
    if not site.nodes:
        return _known_assumed_site(request, site_choice)
    version_text = SlurmConfig(site_texts.config).optional("SLURM_VERSION")
    asks_slurm = not site_choice.site_files
    twin_site = asked_site(site_texts, site, live=asks_slurm)
    return KnownSite(
        twin_site,
        SlurmConfig(site_texts.config).version if version_text else NEWEST_RELEASE,
        live=asks_slurm,
    )


def _known_assumed_site(request: SlurmRequest, site_choice: SiteChoice) -> KnownSite:
    """Return the nodes of the options, with common values for what these leave open.

    The release is that of the Slurm on this machine, or the newest.
    """

    sockets = site_choice.node_sockets or 2
    node_hardware = NodeHardware(
        nodes=site_choice.cluster_nodes or max(64, request.max_nodes or 0),
        sockets=sockets,
        cores_per_socket=max(1, (site_choice.node_cores or 64) // sockets),
        gpus=site_choice.node_gpus or 8,
        confined=site_choice.devices != "open",
        affinity=site_choice.tasks == "bound",
    )
    described_request = assumed_request(request).request
    site, site_files = assumed_site(described_request, node_hardware)
    _, larger_files = assumed_site(
        described_request,
        larger(
            node_hardware,
            nodes=site_choice.cluster_nodes is None,
            gpus=site_choice.node_gpus is None,
            cores=site_choice.node_cores is None,
        ),
    )
    description = f"about {node_count(node_hardware.nodes)} as assumed, idle"
    slurm_install = find_slurm()
    version = slurm_install.version if slurm_install else NEWEST_RELEASE
    return KnownSite(
        AskedSite(site, site_files, None, description, larger_files), version, assumed=True
    )


def _with_task_plugin(site_texts: Texts, site_choice: SiteChoice) -> Texts:
    """Return the site with --task-cpus in place of its TaskPlugin."""

    if not site_choice.tasks:
        return site_texts
    task_plugin = "task/affinity" if site_choice.tasks == "bound" else "task/none"
    config_text = re.sub(r"(?m)^(TaskPlugin\s*=).*", rf"\1 {task_plugin}", site_texts.config)
    conf_text = site_texts.slurm_conf and f"{site_texts.slurm_conf}\nTaskPlugin={task_plugin}\n"
    return replace(site_texts, config=config_text, slurm_conf=conf_text)


def _with_confinement(site: SlurmCluster, site_choice: SiteChoice) -> SlurmCluster:
    """Return the site with --devices in place of its ConstrainDevices."""

    if not site_choice.devices:
        return site
    confined = site_choice.devices == "confined"
    return replace(site, shapes=tuple(replace(shape, confined=confined) for shape in site.shapes))


def node_count(count: int) -> str:
    """Return a number of nodes with its noun."""
    return f"{count} node{'' if count == 1 else 's'}"
