"""The hardware that a server serves: recorded, named by options, detected, or simulated.

The choice is written into the store, so that a restart without any option serves the same.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from podwright.agents import Driver, SimulatedMachine
from podwright.controller import StoreFault, damaged
from podwright.errors import InvalidRequest, Unavailable, WrongState
from podwright.fabric import (
    Cluster,
    FabricError,
    LinkDomain,
    Machine,
    cabling,
    family_named,
    load_cluster,
    preset,
    presets,
    rule_name,
    rule_of,
)
from podwright.hosts import host_name
from podwright.store import Put, Store

DEFAULT_PRESET = "pod16"
#: The kind and the key of the record that says what is served.
HARDWARE_RECORD_KEY = _RECORD_KIND, _RECORD_KEY = "server", "hardware"


class ClustersSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of the clusters, as the store keeps it.

    It is a preset's name, the content of all files, or the accelerators of the server's own
    machine.
    """

    preset: str = ""
    clusters: tuple[Cluster, ...] = ()
    local: bool = False


@dataclass(frozen=True)
class ServedHardware:
    """The clusters to serve. nothing_found: they are simulated only because nothing else was found.

    news: what the store has not recorded yet. local: drivers of the server's own machine.
    """

    clusters: tuple[Cluster, ...]
    source: ClustersSource
    nothing_found: bool = False
    news: bool = True
    local: Mapping[str, Driver] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether any of the hardware is simulated."""
        return any(cluster.simulated for cluster in self.clusters)

    def drivers(self) -> dict[str, Driver]:
        """Return a driver for each machine.

        Raises wire.InvalidRequest for one without any driver.
        """
        driver_by_machine: dict[str, Driver] = dict(self.local)
        for cluster in self.clusters:
            if self.source.local:
                continue
            if not cluster.simulated:
                raise InvalidRequest(
                    f"cluster {cluster.name} is not simulated, and this version can drive no "
                    f"{cluster.family.device_noun}s",
                    would_work="write simulated = true in its file",
                )
            links_by_machine = cabling(cluster)
            for domain in cluster.domains:
                for machine in domain.machines:
                    machine_links = links_by_machine.get(machine.name)
                    driver_by_machine[machine.name] = SimulatedMachine(
                        machine, cluster.family, links=machine_links
                    )
        return driver_by_machine

    async def remember(self, store: Store) -> None:
        """Record the choice in the store, for a restart."""
        if self.news:
            source = msgspec.json.encode(self.source, enc_hook=rule_name)
            await store.commit([Put(_RECORD_KIND, _RECORD_KEY, source)])


def detect() -> ServedHardware | None:
    """Return the accelerators of this machine, or None.

    None: it has none, or no library to read them by, or the server runs inside a job of Slurm's,
    which then gives them out. What must not be lost is kept by the hardware itself and by the
    controller's store.
    """
    from podwright.agents.gpu import may_have_gpus, open_machine

    if "SLURM_JOB_ID" in os.environ or not may_have_gpus(os.environ):
        return None
    own_host_name = host_name()
    try:
        gpu_driver = open_machine(Machine(own_host_name), os.environ)
    except Unavailable as error:
        logging.getLogger("podwright.server").warning("%s", error.message)
        return None
    if gpu_driver is None:
        return None
    link_domain = LinkDomain("nvl0", (gpu_driver.machine,))
    cluster = Cluster(
        own_host_name, gpu_driver.family, (link_domain,), simulated=gpu_driver.simulated
    )
    return ServedHardware((cluster,), ClustersSource(local=True), local={own_host_name: gpu_driver})


def choose(
    store_records: Mapping[tuple[str, str], bytes],
    *,
    preset_name: str | None = None,
    cluster_files: Sequence[Path] = (),
    simulate_if_none: bool = True,
    store_name: str = "",
) -> ServedHardware:
    """Return what to serve. store_records: the store's; they take precedence over presets and
    detection.

    simulate_if_none: serve a simulated pod where nothing else exists; without it an administrator
    defines clusters. store_name: the store's name, for messages.

    Raises wire.Unavailable for a damaged record, wire.InvalidRequest for an unknown preset or an
    invalid file, and wire.WrongState when the store holds partitions of other clusters than those
    that are named.
    """
    stored_hardware = _stored_hardware(store_records, store_name)
    if preset_name is None and not cluster_files:
        if stored_hardware is not None:
            return stored_hardware
        if detected_hardware := detect():
            return detected_hardware
        if not simulate_if_none:
            return ServedHardware((), ClustersSource(), news=False)
        return ServedHardware(
            (preset(DEFAULT_PRESET),), ClustersSource(preset=DEFAULT_PRESET), True
        )
    named_hardware = (
        _hardware_from_files(cluster_files)
        if preset_name is None
        else _hardware_from_preset(preset_name)
    )
    if stored_hardware is None:
        return named_hardware
    named_clusters, stored_clusters = (
        ", ".join(cluster.name for cluster in hardware.clusters)
        for hardware in (named_hardware, stored_hardware)
    )
    if named_clusters != stored_clusters and _is_store_in_use(store_records):
        raise WrongState(
            f"the store holds partitions of {stored_clusters}, not of {named_clusters}",
            operation=f"serve {named_clusters}",
            would_work="leave the option out to serve what the store holds, or name another "
            "--storage",
        )
    return named_hardware if named_hardware.source != stored_hardware.source else stored_hardware


def _stored_hardware(
    store_records: Mapping[tuple[str, str], bytes], store_name: str
) -> ServedHardware | None:
    record_body = store_records.get((_RECORD_KIND, _RECORD_KEY))
    if record_body is None:
        return None
    try:
        clusters_source = msgspec.json.decode(record_body, type=ClustersSource, dec_hook=rule_of)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        store_fault = StoreFault(_RECORD_KIND, _RECORD_KEY, f"cannot be read ({error})")
        raise damaged([store_fault], store_name) from error
    if clusters_source.local:
        detected_hardware = detect()
        if detected_hardware is None:
            raise WrongState(
                "the store is of this machine's own GPUs, and they cannot be read now",
                would_work="repair the driver, or name another --storage",
            )
        return replace(detected_hardware, news=False)
    clusters = (
        _hardware_from_preset(clusters_source.preset).clusters
        if clusters_source.preset
        else clusters_source.clusters
    )
    # A family's rules come from the program, not from the store, since a newer program may know
    # better.
    current_clusters = tuple(
        replace(cluster, family=family_named(cluster.family.name) or cluster.family)
        for cluster in clusters
    )
    return ServedHardware(current_clusters, clusters_source, news=False)


def recorded_clusters(store_records: Mapping[tuple[str, str], bytes]) -> tuple[Cluster, ...]:
    """Return the clusters that the store's record of its hardware names; none without a record.

    Raises wire.Unavailable for a damaged record, wire.InvalidRequest for an unknown preset, and
    wire.WrongState for this machine's own GPUs where they cannot be read.
    """
    stored_hardware = _stored_hardware(store_records, "")
    return stored_hardware.clusters if stored_hardware is not None else ()


def _is_store_in_use(store_records: Mapping[tuple[str, str], bytes]) -> bool:
    return any(kind in ("partition", "lease", "quarantine") for kind, _ in store_records)


def _hardware_from_preset(preset_name: str) -> ServedHardware:
    try:
        return ServedHardware((preset(preset_name),), ClustersSource(preset=preset_name))
    except ValueError:
        nearest_presets = difflib.get_close_matches(preset_name.lower(), presets(), n=1)
        raise InvalidRequest(
            f"there is no preset {preset_name!r}"
            + (f"; did you mean {nearest_presets[0]}?" if nearest_presets else ""),
            would_work=f"choose one of {', '.join(presets())}",
        ) from None


def _hardware_from_files(cluster_files: Sequence[Path]) -> ServedHardware:
    clusters: list[Cluster] = []
    seen_names: set[str] = set()
    for cluster_path in cluster_files:
        try:
            cluster = load_cluster(cluster_path)
        except FabricError as error:
            fault_position = f"{error.path}:{error.line}" if error.line else error.path
            problem = ": ".join(part for part in (fault_position, error.key, error.problem) if part)
            raise InvalidRequest(problem, would_work=error.would_work) from None
        cluster_and_machines = {f"cluster {cluster.name}"} | {
            f"machine {machine.name}" for domain in cluster.domains for machine in domain.machines
        }
        if repeated_names := sorted(seen_names & cluster_and_machines):
            raise InvalidRequest(
                f"{cluster_path}: {repeated_names[0]} is in another file, too",
                would_work="names that differ",
            )
        seen_names |= cluster_and_machines
        clusters.append(cluster)
    return ServedHardware(tuple(clusters), ClustersSource(clusters=tuple(clusters)))
