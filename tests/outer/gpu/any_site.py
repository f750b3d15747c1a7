"""Random sites: several kinds of nodes, partitions and defaults, as public clusters mix them.

GPUs stand out of socket order, unevenly, beside no cores at all; cores have one thread or two;
some GPUs are slices (MIG) or are shared in shards or by MPS, some joined by links. Half of the
sites bind tasks to cores, some of these as they, a partition or a kind of node say. The same for
the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_TYPES = ("a100", "v100", "h100", "1g.10gb", "3g.40gb")
_SELECT = (
    *("CR_Core_Memory",) * 6,
    *("CR_Core",) * 3,
    "CR_CPU",
    "CR_CPU_Memory",
    "CR_Core_Memory,CR_LLN",
    "CR_Core_Memory,CR_ONE_TASK_PER_CORE",
    "CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK",
)


@dataclass(frozen=True)
class Kind:
    """Equal nodes. `gpus` has (type, socket) of each GPU by number; socket -1: no Cores=."""

    sockets: int
    cores: int
    threads: int
    memory: int
    weight: int
    features: tuple[str, ...]
    gpus: tuple[tuple[str, int], ...]
    shards: int = 0
    spec_cores: int = 0
    links: bool = False
    mps: int = 0
    by_core: bool = False  # CPUs= counts cores, though they have threads
    disk: int = 0
    spec_memory: int = 0
    cpu_bind: str = ""

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * (1 if self.by_core else self.threads)

    def gres(self) -> str:
        """The node's Gres= in slurm.conf."""
        counts: dict[str, int] = {}
        for kind, _ in self.gpus:
            counts[kind] = counts.get(kind, 0) + 1
        words = [f"gpu:{kind}:{count}" for kind, count in counts.items()]
        if self.shards:
            words.append(f"shard:{self.shards}")
        if self.mps:
            words.append(f"mps:{self.mps}")
        return ",".join(words)

    def line(self) -> str:
        """What a node's line in slurm.conf says of it."""
        words = [
            f"CPUs={self.cpus} Sockets={self.sockets} CoresPerSocket={self.cores}",
            f"ThreadsPerCore={self.threads} RealMemory={self.memory} Weight={self.weight}",
        ]
        if self.features:
            words.append(f"Feature={','.join(self.features)}")
        if self.gpus:
            words.append(f"Gres={self.gres()}")
        if self.spec_cores:
            words.append(f"CoreSpecCount={self.spec_cores}")
        if self.disk:
            words.append(f"TmpDisk={self.disk}")
        if self.spec_memory:
            words.append(f"MemSpecLimit={self.spec_memory}")
        if self.cpu_bind:
            words.append(f"CpuBind={self.cpu_bind}")
        return " ".join(words)

    def gres_conf(self, name: str) -> list[str]:
        """Its lines of gres.conf."""
        lines = []
        for number, (kind, socket) in enumerate(self.gpus):
            line = f"NodeName={name} Name=gpu Type={kind} File=@LAB@/gpu{number}"
            if socket >= 0:
                first = socket * self.cores
                line += f" Cores={first}-{first + self.cores - 1}"
            if self.links:
                pair = number ^ 1
                links = [
                    "-1" if at == number else "4" if at == pair else "1"
                    for at in range(len(self.gpus))
                ]
                line += " Links=" + ",".join(links)
            lines.append(line)
        if self.shards:
            lines.append(f"NodeName={name} Name=shard Count={self.shards}")
        if self.mps:
            lines.append(f"NodeName={name} Name=mps Count={self.mps}")
        return lines


@dataclass(frozen=True)
class AnySite:
    """Nodes by name, and the settings and lines of slurm.conf beside them."""

    nodes: Mapping[str, Kind]
    settings: Mapping[str, str]
    partitions: tuple[str, ...]
    topology: str = ""
    names: tuple[str, ...] = field(default=())
    drained: tuple[str, ...] = ()

    def gres_conf(self) -> str:
        """All of gres.conf."""
        lines = ["AutoDetect=off"]
        for name, kind in self.nodes.items():
            lines += kind.gres_conf(name)
        return "\n".join(lines) + "\n"

    def types(self) -> tuple[str, ...]:
        """The types of GPUs there are."""
        return tuple(dict.fromkeys(t for kind in self.nodes.values() for t, _ in kind.gpus))

    def features(self) -> tuple[str, ...]:
        """The features there are."""
        return tuple(dict.fromkeys(f for kind in self.nodes.values() for f in kind.features))


def any_site(seed: int) -> AnySite:
    """A site of four to seven nodes."""
    dice = random.Random(f"site {seed}")
    nodes: dict[str, Kind] = {}
    for letter in "abcd"[: dice.choice((2, 2, 3, 3, 4))]:
        kind = _kind(dice, letter)
        for _ in range(dice.choice((1, 2, 2, 3))):
            if len(nodes) < 7:
                nodes[f"n{len(nodes) + 1}"] = kind
    settings = {"SelectTypeParameters": dice.choice(_SELECT), "GresTypes": "gpu,shard,mps"}
    settings |= _defaults(dice)
    if dice.random() < 0.3:
        settings["EnforcePartLimits"] = dice.choice(("ALL", "ANY"))
    topology = ""
    if dice.random() < 0.3 and len(nodes) > 3:
        settings["TopologyPlugin"] = "topology/tree"
        names = list(nodes)
        half = len(names) // 2
        topology = (
            f"SwitchName=leaf1 Nodes={','.join(names[:half])}\n"
            f"SwitchName=leaf2 Nodes={','.join(names[half:])}\n"
            "SwitchName=top Switches=leaf[1-2]\n"
        )
    partitions = _partitions(dice, list(nodes))
    bound = random.Random(f"tasks {seed}")
    if bound.random() < 0.5:
        settings["TaskPlugin"] = "task/affinity"
        partitions = _bound(bound, settings, nodes, partitions)
    found = tuple(line.split()[0].partition("=")[2] for line in partitions)
    drained = dice.sample(list(nodes), 1) if dice.random() < 0.25 else []
    return AnySite(nodes, settings, partitions, topology, found, tuple(drained))


def _bound(
    dice: random.Random,
    settings: dict[str, str],
    nodes: dict[str, Kind],
    partitions: tuple[str, ...],
) -> tuple[str, ...]:
    """To what tasks are bound: TaskPluginParam, and CpuBind= of kinds of nodes and partitions."""
    units = ("cores", "threads", "sockets", "none")
    if dice.random() < 0.4:
        autos = tuple(f"autobind={unit}" for unit in units[:3])
        settings["TaskPluginParam"] = dice.choice((*units, *autos))
    if dice.random() < 0.25:
        for kind in dict.fromkeys(nodes.values()):
            said = replace(kind, cpu_bind=dice.choice(("", *units)))
            nodes.update({name: said for name, its in nodes.items() if its == kind})
    if dice.random() < 0.25:
        return tuple(f"{line} CpuBind={dice.choice(units)}" for line in partitions)
    return partitions


def _defaults(dice: random.Random) -> dict[str, str]:
    found = {}
    if dice.random() < 0.3:
        found["DefCpuPerGPU"] = str(dice.choice((1, 2, 3)))
    memory = {
        "DefMemPerCPU": (100, 200, 500),
        "DefMemPerNode": (500, 1000),
        "DefMemPerGPU": (200, 500, 1000),
    }
    if dice.random() < 0.8:
        key = dice.choice(("DefMemPerCPU", "DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"))
        found[key] = str(dice.choice(memory[key]))
    return found


def _kind(dice: random.Random, letter: str) -> Kind:
    sockets = dice.choice((1, 2, 2, 2, 4))
    cores = dice.choice((2, 3, 4, 4, 6, 8))
    count = dice.choice((0, 1, 2, 4, 4, 4, 6, 8)) if letter != "a" else dice.choice((2, 4, 4, 8))
    types = dice.sample(_TYPES, 2 if dice.random() < 0.3 else 1)
    evenly = [number * sockets // max(count, 1) for number in range(count)]
    way = dice.choice(("even", "even", "turned", "turned", "mixed", "uneven", "none", "some"))
    if way == "turned":
        evenly.reverse()
    elif way == "mixed":
        dice.shuffle(evenly)
    elif way == "uneven":
        evenly = [dice.randrange(sockets) for _ in evenly]
    elif way == "none":
        evenly = [-1] * count
    elif way == "some":
        evenly = [socket if dice.random() < 0.7 else -1 for socket in evenly]
    kinds = sorted((dice.choice(types) for _ in evenly), key=types.index)
    shards = count * dice.choice((2, 4)) if count and dice.random() < 0.3 else 0
    mps = count * dice.choice((10, 100)) if count and not shards and dice.random() < 0.2 else 0
    return Kind(
        sockets=sockets,
        cores=cores,
        threads=dice.choice((1, 1, 2)),
        memory=dice.choice((4000, 8000, 16000)),
        weight=dice.choice((1, 1, 1, 5, 10)),
        features=tuple(f for f in (letter, "fast", "big") if f == letter or dice.random() < 0.4),
        gpus=tuple(zip(kinds, evenly, strict=True)),
        shards=shards,
        spec_cores=dice.choice((0,) * 9 + (1,)),
        links=count in (2, 4, 8) and not shards and not mps and dice.random() < 0.25,
        mps=mps,
        by_core=dice.random() < 0.12,
        disk=dice.choice((0, 0, 50, 1000)),
        spec_memory=dice.choice((0,) * 7 + (500,)),
    )


def _partitions(dice: random.Random, names: list[str]) -> tuple[str, ...]:
    lines = ["PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    for name in ("p1", "p2", "p3"):
        some = sorted(dice.sample(names, dice.randint(1, len(names))), key=names.index)
        state = dice.choice(("UP",) * 16 + ("DOWN", "DRAIN", "INACTIVE"))
        words = [f"PartitionName={name} Nodes={','.join(some)} State={state}"]
        limits = {
            "MaxNodes": ("1", "2"),
            "MinNodes": ("2",),
            "MaxCPUsPerNode": ("2", "4"),
            "MaxMemPerCPU": ("200", "1000"),
            "MaxMemPerNode": ("2000",),
            "DefMemPerCPU": ("100", "300"),
            "DefMemPerGPU": ("300",),
            "DefCpuPerGPU": ("2",),
            "OverSubscribe": ("EXCLUSIVE", "YES", "FORCE"),
            "MaxTime": ("60",),
            "DefaultTime": ("10",),
            "LLN": ("YES",),
            "PriorityTier": ("10",),
            "MaxCPUsPerSocket": ("2",),
        }
        chosen = dice.sample(list(limits), dice.choice((0, 1, 1, 2)))
        if {"DefMemPerCPU", "DefMemPerGPU"} <= set(chosen):
            chosen.remove("DefMemPerGPU")  # they exclude each other
        words += [f"{key}={dice.choice(limits[key])}" for key in chosen]
        lines.append(" ".join(words))
    return tuple(lines)
