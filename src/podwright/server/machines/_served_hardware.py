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
HARDWARE = _KIND, _KEY = "server", "hardware"


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
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
    source: Source
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
        by_cluster: dict[str, Driver] = dict(self.local)
        for cluster in self.clusters:
            if self.source.local:
                continue
            if not cluster.simulated:
                raise InvalidRequest(
                    f"cluster {cluster.name} is not simulated, and this version can drive no "
                    f"{cluster.family.device_noun}s",
                    would_work="write simulated = true in its file",
                )
            wires = cabling(cluster)
            for domain in cluster.domains:
                for machine in domain.machines:
                    links = wires.get(machine.name)
                    by_cluster[machine.name] = SimulatedMachine(
                        machine, cluster.family, links=links
                    )
        return by_cluster

    async def remember(self, store: Store) -> None:
        """Record the choice in the store, for a restart."""
        if self.news:
            body = msgspec.json.encode(self.source, enc_hook=rule_name)
            await store.commit([Put(_KIND, _KEY, body)])


def detect() -> ServedHardware | None:
    """Return the accelerators of this machine, or None.

    None: it has none, or no library to read them by, or the server runs inside a job of Slurm's,
    which then gives them out. What must not be lost is kept by the hardware itself and by the
    controller's store.
    """
    from podwright.agents.gpu import may_have_gpus, open_machine

    if "SLURM_JOB_ID" in os.environ or not may_have_gpus(os.environ):
        return None
    name = host_name()
    try:
        driver = open_machine(Machine(name), os.environ)
    except Unavailable as error:
        logging.getLogger("podwright.server").warning("%s", error.message)
        return None
    if driver is None:
        return None
    domain = LinkDomain("nvl0", (driver.machine,))
    cluster = Cluster(name, driver.family, (domain,), simulated=driver.simulated)
    return ServedHardware((cluster,), Source(local=True), local={name: driver})


def choose(
    records: Mapping[tuple[str, str], bytes],
    *,
    preset_name: str | None = None,
    files: Sequence[Path] = (),
    fallback: bool = True,
    storage: str = "",
) -> ServedHardware:
    """Return what to serve. records: the store's; they take precedence over presets and detection.

    fallback: serve a simulated pod where nothing else exists; without it an administrator defines
    clusters. storage: the store's name, for messages.

    Raises wire.Unavailable for a damaged record, wire.InvalidRequest for an unknown preset or an
    invalid file, and wire.WrongState when the store holds partitions of other clusters than those
    that are named.
    """
    stored = _stored(records, storage)
    if preset_name is None and not files:
        if stored is not None:
            return stored
        if detected := detect():
            return detected
        if not fallback:
            return ServedHardware((), Source(), news=False)
        return ServedHardware((preset(DEFAULT_PRESET),), Source(preset=DEFAULT_PRESET), True)
    named = _from_files(files) if preset_name is None else _from_preset(preset_name)
    if stored is None:
        return named
    ours, theirs = (", ".join(c.name for c in h.clusters) for h in (named, stored))
    if ours != theirs and _in_use(records):
        raise WrongState(
            f"the store holds partitions of {theirs}, not of {ours}",
            operation=f"serve {ours}",
            would_work="leave the option out to serve what the store holds, or name another "
            "--storage",
        )
    return named if named.source != stored.source else stored


def _stored(records: Mapping[tuple[str, str], bytes], storage: str) -> ServedHardware | None:
    body = records.get((_KIND, _KEY))
    if body is None:
        return None
    try:
        source = msgspec.json.decode(body, type=Source, dec_hook=rule_of)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        fault = StoreFault(_KIND, _KEY, f"cannot be read ({error})")
        raise damaged([fault], storage) from error
    if source.local:
        detected = detect()
        if detected is None:
            raise WrongState(
                "the store is of this machine's own GPUs, and they cannot be read now",
                would_work="repair the driver, or name another --storage",
            )
        return replace(detected, news=False)
    clusters = _from_preset(source.preset).clusters if source.preset else source.clusters
    # A family's rules come from the program, not from the store, since a newer program may know
    # better.
    ours = tuple(replace(c, family=family_named(c.family.name) or c.family) for c in clusters)
    return ServedHardware(ours, source, news=False)


def _in_use(records: Mapping[tuple[str, str], bytes]) -> bool:
    return any(kind in ("partition", "lease", "quarantine") for kind, _ in records)


def _from_preset(name: str) -> ServedHardware:
    try:
        return ServedHardware((preset(name),), Source(preset=name))
    except ValueError:
        close = difflib.get_close_matches(name.lower(), presets(), n=1)
        raise InvalidRequest(
            f"there is no preset {name!r}" + (f"; did you mean {close[0]}?" if close else ""),
            would_work=f"choose one of {', '.join(presets())}",
        ) from None


def _from_files(files: Sequence[Path]) -> ServedHardware:
    clusters: list[Cluster] = []
    seen: set[str] = set()
    for path in files:
        try:
            cluster = load_cluster(path)
        except FabricError as error:
            where = f"{error.path}:{error.line}" if error.line else error.path
            problem = ": ".join(part for part in (where, error.key, error.problem) if part)
            raise InvalidRequest(problem, would_work=error.would_work) from None
        names = {f"cluster {cluster.name}"} | {
            f"machine {machine.name}" for domain in cluster.domains for machine in domain.machines
        }
        if twice := sorted(seen & names):
            raise InvalidRequest(
                f"{path}: {twice[0]} is in another file, too", would_work="names that differ"
            )
        seen |= names
        clusters.append(cluster)
    return ServedHardware(tuple(clusters), Source(clusters=tuple(clusters)))
