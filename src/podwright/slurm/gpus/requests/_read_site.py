"""This site's nodes, partitions and defaults, out of what `scontrol` and its files say.

The same readers serve a support bundle: texts that somebody hands over.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from podwright.slurm.gpus.requests._gres_conf import Gpus, gpus_of, lines_of, numbers
from podwright.slurm.gpus.requests._read_partition import read_partitions, sized
from podwright.slurm.gpus.requests._request import SHARED
from podwright.slurm.gpus.requests._topologies import read_topologies, with_topologies
from podwright.slurm.gpus.requests._units import MIB, names
from podwright.slurm.gpus.requests._values import EVERY_SOCKET, NodeHardware, SlurmCluster
from podwright.slurm.site.ask import Ask, ask_slurm
from podwright.slurm.site.releases import Version, read_version

_GPU = re.compile(r"(?:^|,)gpu(?::([^:(,]+))??:(\d+)(?:\(S:([\d,-]+)\))?(?=,|\(|$)")
_OTHER = re.compile(r"(?:^|,)([a-z_]\w*)(?::[^:(,]+)??:(\d+)(?=,|\(|$)", re.I)
_DOWN = ("DOWN", "DRAIN", "FAIL", "MAINT", "POWERING", "FUTURE", "UNKNOWN", "REBOOT", "PLANNED")


@dataclass(frozen=True)
class Texts:
    """What a site says of itself: output of scontrol, and files."""

    config: str  # scontrol show config
    nodes: str  # scontrol --oneliner show node
    partitions: str = ""  # scontrol --oneliner show partition
    gres_conf: str = ""
    topology_conf: str = ""
    cgroup_conf: str = ""
    topology_yaml: str = ""  # or scontrol show topoconf


def read_kinds(gres: str) -> dict[str, int]:
    """How many GPUs of each type a node's Gres names; the type is empty where it names none."""
    found: dict[str, int] = {}
    for kind, count, _ in _GPU.findall(gres):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def read_site(texts: Texts) -> SlurmCluster:
    """The site that these texts describe. What decides and is not modelled is named in it."""
    config = settings(texts.config)
    rows = lines_of(texts.gres_conf)
    shapes: dict[NodeHardware, int] = {}
    nodes: list[tuple[str, int]] = []
    down: set[str] = set()
    assumed: set[str] = set()
    for line in texts.nodes.splitlines():
        fields = fields_of(line)
        name = fields.get("NodeName", "")
        if not name:
            continue
        shape, guessed = _shape(fields, rows, config, texts)
        if guessed:
            assumed.add(name)
        nodes.append((name, shapes.setdefault(shape, len(shapes))))
        if any(word in fields.get("State", "") for word in _DOWN):
            down.add(name)
    partitions, default = read_partitions(texts.partitions, {n for n, _ in nodes})
    counted = Counter(kind for _, kind in nodes)
    kinds = tuple(replace(shape, nodes=counted[at]) for shape, at in shapes.items())
    leaves, above = _switches(texts.topology_conf)
    kind = _topology(config.get("TopologyPlugin", ""))
    found = SlurmCluster(
        shapes=kinds,
        nodes=tuple(nodes),
        partitions=partitions,
        default=default,
        down=frozenset(down),
        select=frozenset(
            word.strip().upper()
            for word in config.get("SelectTypeParameters", "CR_CORE").split(",")
        ),
        memory=sized(config, "Def"),
        most_memory=sized(config, "Max"),
        cpus_per_gpu=_of_defaults(config.get("JobDefaults", ""), "DefCpuPerGPU"),
        memory_per_gpu=_of_defaults(config.get("JobDefaults", ""), "DefMemPerGPU") * MIB,
        enforce=config.get("EnforcePartLimits", "NO").upper(),
        prefers="ignore_prefer_validation" not in config.get("SchedulerParameters", ""),
        cpu_bind=config.get("TaskPluginParam", ""),
        core_spec_allowed=config.get("AllowSpecResourcesUsage", "No").lower() in ("yes", "1"),
        leaves=leaves if kind == "tree" else (),
        above=above if kind == "tree" else (),
        topology=kind,
        unmodelled=_unmodelled(config, kind, leaves, several=bool(texts.topology_yaml)),
        assumed=frozenset(assumed),
        gres_types=_gres_types(config.get("GresTypes", "")),
        hidden_shares=_hidden_shares(config.get("GresTypes", "")),
        cautions=_cautions(config),
    )
    if texts.topology_yaml:
        return with_topologies(found, read_topologies(texts.topology_yaml))
    return found


def _gres_types(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name not in ("", "(null)"))


def _hidden_shares(types: str) -> frozenset[str]:
    """Where GresTypes has both kinds of shares, the plugin that comes last finds none of its own
    in a job of the other's, and unsets what that one had set (seen on 22.05.8 and 26.05.5)."""
    there = [name for name in types.split(",") if name in SHARED]
    return frozenset(there[:-1])


def settings(config: str) -> dict[str, str]:
    """`scontrol show config` as pairs."""
    found: dict[str, str] = {}
    for line in config.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip():
            found[key.strip()] = value.strip()
    return found


def fields_of(line: str) -> dict[str, str]:
    """A line of `scontrol --oneliner` as pairs."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _of_defaults(text: str, key: str) -> int:
    found = re.search(rf"{key}=(\d+)", text, re.I)
    return int(found[1]) if found else 0


def _topology(plugin: str) -> str:
    name = plugin.rpartition("/")[2].lower()
    return "flat" if name in ("", "none", "default", "flat", "(null)") else name


def _switches(
    text: str,
) -> tuple[tuple[tuple[str, frozenset[str]], ...], tuple[tuple[str, frozenset[str]], ...]]:
    leaves, above = [], []
    for row in lines_of(text):
        if "switchname" not in row:
            continue
        if "switches" in row:
            above.append((row["switchname"], frozenset(names(row["switches"]))))
        else:
            leaves.append((row["switchname"], frozenset(names(row.get("nodes", "")))))
    return tuple(leaves), tuple(above)


def _unmodelled(
    config: dict[str, str], topology: str, leaves: tuple[object, ...], *, several: bool
) -> tuple[str, ...]:
    found = []
    plugin = config.get("SelectType", "select/cons_tres")
    if plugin not in ("select/cons_tres", "(null)"):
        found.append(plugin)
    words = config.get("SelectTypeParameters", "").upper()
    found += [word for word in ("CR_SOCKET", "CR_BOARD", "CR_PACK_NODES") if word in words]
    if topology not in ("flat", "tree") and not several:
        found.append(f"topology/{topology}")
    if topology == "tree" and not leaves and not several:
        found.append("topology/tree without its topology.conf")
    params = config.get("TopologyParam", "").lower()
    found += [word for word in ("dragonfly", "topooptional") if word in params]
    return tuple(found)


def _cautions(config: dict[str, str]) -> tuple[str, ...]:
    """What may change a request or hold it back, and is not looked at."""
    found = []
    enforced = config.get("AccountingStorageEnforce", "").lower()
    if "limits" in enforced or "qos" in enforced or "safe" in enforced:
        found.append("limits of accounts and QOS hold here, and are not looked at")
    for key in ("JobSubmitPlugins", "CliFilterPlugins"):
        value = config.get(key, "(null)")
        if value not in ("(null)", "", "None"):
            found.append(f"{key}={value} of this site may change the options")
    return tuple(found)


def _shape(
    fields: dict[str, str], rows: list[dict[str, str]], config: dict[str, str], texts: Texts
) -> tuple[NodeHardware, bool]:
    """A node's kind, and whether the sockets of its GPUs are only assumed."""
    sockets, cores = int(fields.get("Sockets", "1")), int(fields.get("CoresPerSocket", "1"))
    threads = int(fields.get("ThreadsPerCore", "1"))
    gres = fields.get("Gres", "")
    said = gpus_of(rows, fields["NodeName"], sockets, cores)
    kinds = read_kinds(gres)
    types, beside = _each_gpu(gres, sockets)
    exact = len(said.types) == len(types) and not said.detected and not said.partly
    if exact:
        types = tuple(said.types)
        beside = tuple(said.beside)
    cpus = int(fields.get("CPUTot", "0")) or sockets * cores * threads
    per_core = 1 if cpus == sockets * cores else threads
    spec_memory = int(fields.get("MemSpecLimit", "0"))
    memory = int(fields.get("RealMemory", "1")) - spec_memory
    other = [n for n in dict(_OTHER.findall(gres)) if n not in ("gpu", "shard", "mps")]
    links = tuple(said.links) if exact and said.links and all(said.links) else ()
    return NodeHardware(
        sockets=sockets,
        cores_per_socket=cores,
        threads=threads,
        cpus=cpus,
        gpus=len(types),
        kinds=tuple(sorted(kind for kind in kinds if kind)),
        confined=_yes(texts, "ConstrainDevices"),
        affinity="affinity" in config.get("TaskPlugin", ""),
        cpu_bind=fields.get("CpuBind", ""),
        beside=beside,
        names_cores=tuple(said.names_cores) if exact and len(set(said.names_cores)) > 1 else (),
        types=types,
        memory=memory * MIB,
        spec_memory=spec_memory * MIB,
        disk=int(fields.get("TmpDisk", "0")) * MIB,
        weight=int(fields.get("Weight", "1")),
        features=frozenset(
            f for f in fields.get("AvailableFeatures", "").split(",") if f and f != "(null)"
        ),
        shards=_shares(said, gres, "shard", len(types)),
        mps=_shares(said, gres, "mps", len(types)),
        links=links,
        reserved=_reserved(fields, cpus, threads, per_core),
        other_gres=tuple((name, 1) for name in other),
    ), bool(types) and not exact and not _plain(gres, sockets)


def _reserved(fields: dict[str, str], cpus: int, threads: int, per_core: int) -> frozenset[int]:
    """The cores that no job gets. 22.05 numbers threads even where CPUs= counts cores."""
    spec = numbers(fields.get("CPUSpecList", ""))
    each = threads if any(cpu >= cpus for cpu in spec) else per_core
    return frozenset(cpu // each for cpu in spec)


def _plain(gres: str, sockets: int) -> bool:
    """Whether Gres alone says where each GPU sits: those of a type beside one socket, or all."""
    return all(len(_sockets(on, sockets)) <= 1 for _, _, on in _GPU.findall(gres))


def _shares(said: Gpus, gres: str, name: str, gpus: int) -> tuple[int, ...]:
    total = sum(int(n) for key, n in _OTHER.findall(gres) if key == name)
    if not total or not gpus:
        return ()
    found = said.shares(name)
    if found and len(found) == gpus:
        return found
    each, more = divmod(total, gpus)
    return tuple(each + (gpu < more) for gpu in range(gpus))


def _yes(texts: Texts, key: str) -> bool:
    both = f"{texts.config}\n{texts.cgroup_conf}"
    return bool(re.search(rf"^\s*{key}\s*=\s*yes", both, re.M | re.I))


def read_shape(nodes: str, config: str, partition: str = "") -> NodeHardware | None:
    """The commonest shape among nodes with GPUs (of one partition); None where there are none.

    nodes: output of `scontrol --oneliner show node`; config: of `scontrol show config`.
    """
    counted: Counter[tuple[int, int, str]] = Counter()
    for row in nodes.splitlines():
        fields = fields_of(row)
        gres = fields.get("Gres", "")
        if not _GPU.search(gres):
            continue
        if partition and partition not in fields.get("Partitions", "").split(","):
            continue
        sockets = int(fields.get("Sockets", "1"))
        counted[(sockets, int(fields.get("CoresPerSocket", "1")), gres)] += 1
    if not counted:
        return None
    (sockets, cores, gres), nodes_alike = counted.most_common(1)[0]
    affinity = re.search(r"^TaskPlugin\s*=.*\baffinity", config, re.M)
    confined = re.search(r"^ConstrainDevices\s*=\s*yes", config, re.M | re.I)
    types, beside = _each_gpu(gres, sockets)
    kinds = tuple(sorted({kind for kind in types if kind}))
    evenly = beside == _evenly(len(types), sockets)
    return NodeHardware(
        nodes=nodes_alike,
        sockets=sockets,
        cores_per_socket=cores,
        gpus=len(types),
        kinds=kinds,
        confined=bool(confined),
        affinity=bool(affinity),
        beside=() if evenly else beside,
        types=types if len(set(types)) > 1 else (),
    )


def _each_gpu(gres: str, sockets: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Type and socket of every GPU, in the order of Gres; of several sockets each has its share."""
    types: list[str] = []
    beside: list[int] = []
    for kind, number, named in _GPU.findall(gres):
        count = int(number)
        types += [kind] * count
        on = _sockets(named, sockets)
        beside += [on[at] for at in _evenly(count, len(on))] if on else [EVERY_SOCKET] * count
    return tuple(types), tuple(beside)


def _sockets(named: str, sockets: int) -> list[int]:
    """The sockets of `S:0-1`; none where gres.conf names no cores."""
    return [n for n in numbers(named) if n < sockets] if named else []


def _evenly(gpus: int, sockets: int) -> tuple[int, ...]:
    share, more = divmod(gpus, sockets)
    return tuple(at for at in range(sockets) for _ in range(share + (at < more)))


def site(ask: Ask = ask_slurm, partition: str = "") -> tuple[NodeHardware | None, Version | None]:
    """(shape, version) of the Slurm that this machine belongs to; None for what is not known."""
    config = ask(["scontrol", "show", "config"])
    if not config:
        return None, None
    nodes = ask(["scontrol", "--oneliner", "show", "node"])
    return read_shape(nodes, config, partition), read_version(config)
