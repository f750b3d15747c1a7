"""Fits job scripts to a site: to its inventory, or to what its Slurm shows."""

from __future__ import annotations

from collections.abc import Callable

from podwright.gpu.configure import read_inventory
from podwright.gpu.requests import read_shape
from podwright.gpu.templates._template_values import (
    Fit,
    TemplateOptions,
    nodes_with,
    of_inventory,
    of_slurm,
)
from podwright.slurm import reader
from podwright.slurm.site.blocking_commands import ask_slurm
from podwright.slurm.site.releases import parse_version


def fit_site(
    options: TemplateOptions,
    *,
    inventory_path: str | None,
    slurm_version: str | None,
    add_note: Callable[[str], None],
) -> Fit:
    """Return what fits scripts to an inventory or to this machine's Slurm. add_note: gets what is
    to be said about its release.
    """
    config = reader.SlurmConfig(ask_slurm(list(reader.SHOW_CONFIG)))
    release = (
        parse_version(slurm_version) if slurm_version else (config.version if config else None)
    )
    if config and (release_note := reader.release_note(config.version)):
        add_note(release_note)
    if inventory_path:
        return of_inventory(read_inventory(inventory_path), options, release)
    if not config:
        return Fit(slurm_version=release)
    nodes = reader.read_nodes(ask_slurm(list(reader.SHOW_NODES)))
    if options.type and nodes:
        nodes = nodes_with(options.type, nodes)
    node_hardware = read_shape(nodes, config, options.partition)
    switches = reader.read_switches(ask_slurm(list(reader.SHOW_TOPOLOGY)))
    if options.partition:
        nodes = [node for node in nodes if options.partition in node.partitions]
    return of_slurm(node_hardware, config, nodes, switches)._replace(slurm_version=release)
