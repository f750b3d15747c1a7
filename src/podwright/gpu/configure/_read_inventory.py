"""Reads an inventory: TOML or JSON, checked while it is read.

    [[nodes]]
    names = "gpu[001-016]"             # or name = "gpu001"
    sockets = 2
    cores_per_socket = 56
    threads_per_core = 2               # 1 if left out
    numa_nodes = 2                     # as many as sockets if left out
    memory = 2063000                   # MiB; Slurm's own figure if left out
    domain = "rack1"                   # NVLink domain of several nodes (NVL72), if any
    core_spec_count = 2                # cores that jobs do not get; 0 if left out
    mem_spec_limit = 8192              # MiB that jobs do not get; 0 if left out
    shards = 4                         # jobs may share a GPU by --gres=shard; 0 if left out
    mps = 100                          # likewise by --gres=mps, in parts of a hundred, say
    gpus = { type = "h100", count = 8, memory = 80 }    # memory in GiB
    nics = [{ device = "mlx5_0", interface = "ib0", numa = 0, rail = 0 }]

    [[switches]]
    name = "leaf1"
    nodes = "gpu[001-016]"

    [[switches]]
    name = "spine"
    switches = "leaf[1-2]"

What `podwright inventory --json` printed on the nodes, a line for each, is an inventory too, and

    survey = "nodes.json"

takes it into a file of one's own, beside switches and partitions: nothing else has to be told.

`gpus` may list them one by one, each with type, and file, memory, numa, cores, links where known.
In a count, `files` ("/dev/nvidia[0-7]"), `numa` ([0, 0, 1, 1]) and `links` (rows) may be told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podwright.errors import InvalidRequest
from podwright.gpu.configure._inventory import (
    Kind,
    NodeGpu,
    NodeNic,
    PlannedPartition,
    SiteInventory,
    Switch,
)
from podwright.gpu.configure._machine_survey import surveyed
from podwright.hosts import BadHostList, expand, read_list

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: A GPU's type, in the form of Slurm's GRES. MIG's types begin with a digit (1g.10gb). Slurm would
#: read a bare number, or one with its multiples behind it (2k), as a count.
_GPU_TYPE = re.compile(r"(?!\d+[kmgtp]?$)[A-Za-z0-9_][A-Za-z0-9_.+-]*", re.IGNORECASE)
_FILE = re.compile(r"/[A-Za-z0-9/_.:+-]+(,/[A-Za-z0-9/_.:+-]+)*")
_NIC = re.compile(r"[A-Za-z0-9_.:-]+")
_TOP = ("survey", "nodes", "switches", "partitions")
_NODE = (
    *("name", "names", "sockets", "cores_per_socket", "threads_per_core", "numa_nodes", "memory"),
    *("features", "domain", "gpus", "nics", "core_spec_count", "mem_spec_limit", "shards", "mps"),
)
_GPU = ("type", "file", "memory", "numa", "cores", "links", "uuid", "bus")
_COUNT = ("type", "count", "files", "memory", "numa", "links")


def read_inventory(path: str | Path) -> SiteInventory:
    """The inventory in a file. Raises InvalidRequest for the first fault in it."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}", operation="read the inventory") from None
    try:
        if re.match(rb"\s*(\[\s*)?\{", data):
            import json

            try:
                tree = json.loads(data)
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":  # a survey has one line for each node
                    raise
                tree = {}
            if not isinstance(tree, dict) or "nodes" not in tree:
                tree = {"nodes": surveyed(data.decode(), str(path))}
        else:
            import tomllib

            tree = tomllib.loads(data.decode())
            if isinstance(survey := tree.pop("survey", None), str):
                survey_path = Path(path).parent / survey
                tree["nodes"] = [
                    *tree.get("nodes", []),
                    *surveyed(survey_path.read_text(), str(survey_path)),
                ]
    except OSError as error:
        raise InvalidRequest(
            f"{error.filename}: {error.strerror}", operation="read the inventory"
        ) from None
    except ValueError as error:
        raise InvalidRequest(f"{path}: {error}", operation="read the inventory") from None
    return make_inventory(tree, str(path))


def make_inventory(tree: Mapping[str, Any], file: str = "inventory") -> SiteInventory:
    """The inventory that a tree of tables describes. Raises InvalidRequest."""
    return _Reader(file).inventory(tree)


def _alike(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Mapping) and "uuid" in value[0]:
        return [
            {k: v for k, v in entry.items() if k not in ("uuid", "bus")}
            if isinstance(entry, Mapping)
            else entry
            for entry in value
        ]
    return value


def _device(table: Mapping[str, Any], index: int) -> str:
    """Return the device file that the driver of such a GPU makes: AMD's have render nodes."""
    amd = re.match(r"(amd_?)?(instinct_?)?mi\d", str(table.get("type", "")), re.I)
    return f"/dev/dri/renderD{128 + index}" if amd else f"/dev/nvidia{index}"


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self._kinds: dict[str, Kind] = {}

    def fail(self, key: str, problem: str, would_work: str = "") -> InvalidRequest:
        return InvalidRequest(
            f"{self.file}: {key} {problem}", operation="read the inventory", would_work=would_work
        )

    def inventory(self, tree: Any) -> SiteInventory:
        self._keys("the file", tree, _TOP)
        nodes: dict[str, Kind] = {}
        domains: dict[str, list[str]] = {}
        for index, table in enumerate(self._tables("nodes", tree.get("nodes"))):
            key = f"nodes[{index}]"
            self._keys(key, table, _NODE)
            names = self._hosts(f"{key}.names", table.get("names") or table.get("name"))
            kind = self._kind(key, table)
            for name in names:
                if name in nodes:
                    raise self.fail(f"{key}.names:", f"{name} is named twice")
                nodes[name] = kind
            if domain := table.get("domain"):
                domains.setdefault(self._word(f"{key}.domain", domain), []).extend(names)
        if not nodes:
            raise self.fail("nodes:", "there are none", "a table [[nodes]] for each kind of node")
        return SiteInventory(
            nodes,
            self._switches(tree.get("switches", []), nodes),
            {name: tuple(those) for name, those in domains.items()},
            self._partitions(tree.get("partitions", []), nodes),
        )

    def _kind(self, prefix: str, table: Mapping[str, Any]) -> Kind:
        # Nodes of a survey that are otherwise equal differ in values that Slurm does not need
        # (UUIDs, bus addresses).
        same = repr([_alike(table.get(key)) for key in _NODE[2:] if key != "domain"])
        if same in self._kinds:
            return self._kinds[same]
        sockets = self._number(f"{prefix}.sockets", table.get("sockets"))
        each = self._number(f"{prefix}.cores_per_socket", table.get("cores_per_socket"))
        numa = self._number(f"{prefix}.numa_nodes", table.get("numa_nodes", sockets))
        if sockets * each % numa:
            raise self.fail(f"{prefix}:", f"{sockets * each} cores are not {numa} equal NUMA nodes")
        spec = self._number(f"{prefix}.core_spec_count", table.get("core_spec_count", 0), least=0)
        if spec >= sockets * each:
            raise self.fail(f"{prefix}.core_spec_count:", f"{spec} of {sockets * each} cores")
        kind = Kind(
            gpus=self._gpus(f"{prefix}.gpus", table.get("gpus"), sockets * each, numa),
            sockets=sockets,
            cores_per_socket=each,
            threads_per_core=self._number(
                f"{prefix}.threads_per_core", table.get("threads_per_core", 1)
            ),
            numa_nodes=numa,
            memory=self._number(f"{prefix}.memory", table.get("memory", 0), least=0) << 20,
            features=tuple(self._word(f"{prefix}.features", f) for f in table.get("features", ())),
            nics=tuple(
                self._nic(f"{prefix}.nics[{n}]", nic, n, numa)
                for n, nic in enumerate(table.get("nics", ()))
            ),
            core_spec_count=spec,
            mem_spec_limit=self._number(
                f"{prefix}.mem_spec_limit", table.get("mem_spec_limit", 0), least=0
            )
            << 20,
            shards=self._number(f"{prefix}.shards", table.get("shards", 0), least=0),
            mps=self._number(f"{prefix}.mps", table.get("mps", 0), least=0),
        )
        self._kinds[same] = kind
        return kind

    def _gpus(self, key: str, value: Any, cores: int, numa: int) -> tuple[NodeGpu, ...]:
        if isinstance(value, Mapping):
            value = self._counted(key, value, numa)
        if not isinstance(value, list) or not value:
            raise self.fail(key, "names no GPU", 'gpus = { type = "h100", count = 8 }')
        cores_per_numa = cores // numa
        gpus = []
        for index, entry in enumerate(value):
            entry_at = f"{key}[{index}]"
            self._keys(entry_at, entry, _GPU)
            near = self._number(f"{entry_at}.numa", entry.get("numa", 0), least=0)
            if near >= numa:
                raise self.fail(f"{entry_at}.numa:", f"{near}, but there are {numa} NUMA nodes")
            core_list = entry.get("cores")
            own_cores = (
                self._cores(f"{entry_at}.cores", core_list, cores) if core_list is not None else ()
            )
            links = tuple(entry.get("links", ()))
            if links and (len(links) != len(value) or not all(type(n) is int for n in links)):
                raise self.fail(f"{entry_at}.links:", f"a number for each of the {len(value)} GPUs")
            gpus.append(
                NodeGpu(
                    type=self._gpu_type(f"{entry_at}.type", entry.get("type")),
                    file=self._file(f"{entry_at}.file", entry.get("file", _device(entry, index))),
                    memory=self._number(f"{entry_at}.memory", entry.get("memory", 0), least=0)
                    << 30,
                    numa=near,
                    cores=own_cores
                    or tuple(range(near * cores_per_numa, (near + 1) * cores_per_numa)),
                    links=links,
                )
            )
        known = [gpu.file for gpu in gpus if gpu.file]
        if len(set(known)) < len(known):
            raise self.fail(key, "two GPUs have one device file")
        if any(gpu.links for gpu in gpus) and not all(gpu.links for gpu in gpus):
            raise self.fail(key, "links are told of some GPUs and not of others")
        return tuple(gpus)

    def _counted(self, prefix: str, value: Mapping[str, Any], numa: int) -> list[dict[str, Any]]:
        """Return equal GPUs, spread evenly over the NUMA nodes unless the inventory gives the
        nodes.
        """
        self._keys(prefix, value, _COUNT)
        count = self._number(f"{prefix}.count", value.get("count"))
        usual = [_device(value, index) for index in range(count)]
        files = self._files(f"{prefix}.files", value["files"]) if "files" in value else usual
        near = value.get("numa", [index * numa // count for index in range(count)])
        links = value.get("links", [])
        for key, values in (("files", files), ("numa", near), ("links", links or files)):
            if not isinstance(values, list) or len(values) != count:
                raise self.fail(f"{prefix}.{key}:", f"one for each of the {count} GPUs")
        rows = [{"links": row} for row in links] or [{}] * count
        same = {key: value[key] for key in ("type", "memory") if key in value}
        return [
            {**same, "file": file, "numa": node, **row}
            for file, node, row in zip(files, near, rows, strict=True)
        ]

    def _nic(self, key: str, value: Any, index: int, numa: int) -> NodeNic:
        self._keys(key, value, ("device", "interface", "numa", "rail"))
        names = [value.get("device", ""), value.get("interface", "")]
        for name in names:
            if not isinstance(name, str) or (name and not _NIC.fullmatch(name)):
                raise self.fail(key, f"{name!r} is not a network card", '{ device = "mlx5_0" }')
        if not any(names):
            raise self.fail(key, "names neither device nor interface")
        near = self._number(f"{key}.numa", value.get("numa", 0), least=0)
        if near >= numa:
            raise self.fail(f"{key}.numa:", f"{near}, but there are {numa} NUMA nodes")
        rail = self._number(f"{key}.rail", value.get("rail", index), least=0)
        return NodeNic(names[0], names[1], near, rail)

    def _switches(self, value: Any, nodes: Mapping[str, Kind]) -> tuple[Switch, ...]:
        switches: dict[str, Switch] = {}
        for index, table in enumerate(self._tables("switches", value)):
            prefix = f"switches[{index}]"
            self._keys(prefix, table, ("name", "nodes", "switches"))
            name = self._word(f"{prefix}.name", table.get("name"))
            below = [key for key in ("nodes", "switches") if table.get(key)]
            if len(below) != 1 or name in switches:
                raise self.fail(prefix, "each has a name of its own, and either nodes or switches")
            members = self._hosts(f"{prefix}.{below[0]}", table[below[0]])
            switches[name] = Switch(name, **{below[0]: members})
        for switch in switches.values():
            for member in (*switch.nodes, *switch.switches):
                if member not in (nodes if switch.nodes else switches):
                    raise self.fail(f"switch {switch.name}:", f"there is no {member}")
        return tuple(switches.values())

    def _partitions(self, value: Any, nodes: Mapping[str, Kind]) -> tuple[PlannedPartition, ...]:
        partitions = []
        for index, table in enumerate(self._tables("partitions", value)):
            prefix = f"partitions[{index}]"
            self._keys(prefix, table, ("name", "nodes", "default", "exclusive"))
            those = self._hosts(f"{prefix}.nodes", table.get("nodes"))
            for name in those:
                if name not in nodes:
                    raise self.fail(f"{prefix}.nodes:", f"there is no {name}")
            flags = [table.get(key, False) for key in ("default", "exclusive")]
            if not all(isinstance(flag, bool) for flag in flags):
                raise self.fail(prefix, "default and exclusive are true or false")
            partitions.append(
                PlannedPartition(self._word(f"{prefix}.name", table.get("name")), those, *flags)
            )
        return tuple(partitions)

    # Single values

    def _keys(self, prefix: str, table: Any, known: Sequence[str]) -> None:
        if not isinstance(table, Mapping):
            raise self.fail(prefix, "is not a table")
        for key in table:
            if key not in known:
                raise self.fail(
                    f"{prefix}:", f"{key} is not a key of this table", f"one of {', '.join(known)}"
                )

    def _tables(self, key: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(f"{key}:", "is not a list of tables", f"[[{key}]]")
        return value

    def _hosts(self, key: str, value: Any) -> tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            value = ",".join(value)
        if not isinstance(value, str) or not value:
            raise self.fail(key, "names none", 'names such as "gpu[001-016]"')
        try:
            return expand(value)
        except BadHostList as error:
            raise self.fail(f"{key}:", str(error)) from None

    def _files(self, key: str, value: Any) -> list[str]:
        if isinstance(value, list):
            return value
        folder, _, names = str(value).rpartition("/")
        return [f"{folder}/{name}" for name in self._hosts(key, names)]

    def _file(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or (value and not _FILE.fullmatch(value)):
            raise self.fail(key, f"{value!r} is not a device file", '"/dev/nvidia0"')
        return value

    def _cores(self, key: str, value: Any, cores: int) -> tuple[int, ...]:
        try:
            numbers = read_list(value) if isinstance(value, str) else list(value)
            bad = [n for n in numbers if type(n) is not int or not 0 <= n < cores]
        except (TypeError, ValueError):
            bad = [-1]
            numbers = []
        if bad or not numbers:
            raise self.fail(key, f"{value!r}: cores are numbers from 0 to {cores - 1}", '"0-27"')
        return tuple(sorted(numbers))

    def _number(self, key: str, value: Any, least: int = 1) -> int:
        if type(value) is not int or value < least:
            raise self.fail(key, f"is {value!r}, and no number of {least} or more")
        return value

    def _gpu_type(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not _GPU_TYPE.fullmatch(value):
            raise self.fail(key, f"{value!r}: a GPU type of letters, digits, _ . + and - is wanted")
        return value

    def _word(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            raise self.fail(key, f"{value!r}: a word of letters, digits, _ . and - is wanted")
        return value
