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
    gpus = { type = "h100", count = 8, memory = 80 }    # memory in GiB; a node of CPUs has none
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
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from podwright.errors import InvalidRequest
from podwright.gpu.configure._inventory import (
    Kind,
    NodeGpu,
    NodeNic,
    PlannedPartition,
    SiteInventory,
    Switch,
)
from podwright.gpu.configure._survey_to_inventory import survey_tables
from podwright.ground.checked_tables import BadTable, KeyPath, checked, dotted
from podwright.hosts import BadHostList, expand, read_list


def _text(pattern: str, description: str) -> Meta:
    return Meta(pattern=rf"^(?:{pattern})\Z", description=description)


_Word = Annotated[str, _text(r"[A-Za-z_][A-Za-z0-9_.-]*", "a word of letters, digits, _ . and -")]
#: A GPU's type, in the form of Slurm's GRES. MIG's types begin with a digit (1g.10gb). Slurm would
#: read a bare number, or one with its multiples behind it (2k), as a count.
_GpuType = Annotated[
    str,
    _text(
        r"(?!\d+[kmgtpKMGTP]?$)[A-Za-z0-9_][A-Za-z0-9_.+-]*",
        "a GPU type of letters, digits, _ . + and -",
    ),
]
_PATH = r"/[A-Za-z0-9/_.:+-]+"
_File = Annotated[str, _text(f"|{_PATH}(,{_PATH})*", "a device file such as /dev/nvidia0")]
_Nic = Annotated[str, _text(r"[A-Za-z0-9_.:-]*", "a network card such as mlx5_0")]
_Names = str | tuple[str, ...]
_Count = Annotated[int, Meta(ge=1, description="a number of 1 or more")]
_Number = Annotated[int, Meta(ge=0, description="a number of 0 or more")]


class _GpuTable(Struct, frozen=True, forbid_unknown_fields=True):
    type: _GpuType
    file: _File | None = None
    memory: _Number = 0
    numa: _Number = 0
    cores: str | tuple[int, ...] | None = None
    links: tuple[int, ...] = ()
    uuid: str = ""
    bus: str = ""


class _GpuCount(Struct, frozen=True, forbid_unknown_fields=True):
    type: _GpuType
    count: _Count
    files: str | tuple[_File, ...] | None = None
    memory: _Number = 0
    numa: tuple[_Number, ...] | None = None
    links: tuple[tuple[int, ...], ...] = ()


class _NicTable(Struct, frozen=True, forbid_unknown_fields=True):
    device: _Nic = ""
    interface: _Nic = ""
    numa: _Number = 0
    rail: _Number | None = None


class _NodeTable(Struct, frozen=True, forbid_unknown_fields=True):
    sockets: _Count
    cores_per_socket: _Count
    name: _Names = ""
    names: _Names = ""
    threads_per_core: _Count = 1
    numa_nodes: _Count | None = None
    memory: _Number = 0
    features: tuple[_Word, ...] = ()
    domain: _Word | None = None
    gpus: tuple[_GpuTable, ...] | _GpuCount | None = None
    nics: tuple[_NicTable, ...] = ()
    core_spec_count: _Number = 0
    mem_spec_limit: _Number = 0
    shards: _Number = 0
    mps: _Number = 0


class _SwitchTable(Struct, frozen=True, forbid_unknown_fields=True):
    name: _Word
    nodes: _Names = ""
    switches: _Names = ""


class _PartitionTable(Struct, frozen=True, forbid_unknown_fields=True):
    name: _Word
    nodes: _Names
    default: bool = False
    exclusive: bool = False


class _InventoryFile(Struct, frozen=True, forbid_unknown_fields=True):
    nodes: Annotated[
        tuple[_NodeTable, ...], Meta(min_length=1, description="a table for each kind of node")
    ]
    switches: tuple[_SwitchTable, ...] = ()
    partitions: tuple[_PartitionTable, ...] = ()


def read_inventory(path: str | Path) -> SiteInventory:
    """The inventory in a file. Raises InvalidRequest for the first fault in it."""
    try:
        file_bytes = Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}", operation="read the inventory") from None
    try:
        if re.match(rb"\s*(\[\s*)?\{", file_bytes):
            import json

            try:
                inventory_tree = json.loads(file_bytes)
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":  # a survey has one line for each node
                    raise
                inventory_tree = {}
            if not isinstance(inventory_tree, dict) or "nodes" not in inventory_tree:
                inventory_tree = {"nodes": survey_tables(file_bytes.decode(), str(path))}
        else:
            import tomllib

            inventory_tree = tomllib.loads(file_bytes.decode())
            if isinstance(survey_name := inventory_tree.pop("survey", None), str):
                survey_path = Path(path).parent / survey_name
                survey_nodes = survey_tables(survey_path.read_text(), str(survey_path))
                file_nodes = inventory_tree.get("nodes", [])
                if isinstance(file_nodes, list):  # make_inventory refuses anything else
                    inventory_tree["nodes"] = [*file_nodes, *survey_nodes]
    except OSError as error:
        raise InvalidRequest(
            f"{error.filename}: {error.strerror}", operation="read the inventory"
        ) from None
    except ValueError as error:
        raise InvalidRequest(f"{path}: {error}", operation="read the inventory") from None
    return make_inventory(inventory_tree, str(path))


def make_inventory(inventory_tree: Any, file_label: str = "inventory") -> SiteInventory:
    """The inventory that a tree of tables describes. Raises InvalidRequest."""
    try:
        return _inventory(checked(inventory_tree, _InventoryFile))
    except BadTable as error:
        raise InvalidRequest(
            f"{file_label}: {dotted(error.key_path) or 'the file'}: {error.problem}"
            f"{_node_in_words(inventory_tree, error.key_path)}",
            operation="read the inventory",
            would_work=error.would_work,
        ) from None


def _node_in_words(inventory_tree: Any, key_path: Sequence[str | int]) -> str:
    """Return the name of the nodes that a key belongs to, in brackets: nobody counts tables."""
    match key_path:
        case ("nodes", int(index), *_):
            table = inventory_tree["nodes"][index]
            name = table.get("name") or table.get("names") if isinstance(table, dict) else ""
            return f" (of {name})" if isinstance(name, str) and name else ""
    return ""


def _inventory(file: _InventoryFile) -> SiteInventory:
    nodes: dict[str, Kind] = {}
    domains: dict[str, list[str]] = {}
    kinds: dict[_NodeTable, Kind] = {}
    for index, table in enumerate(file.nodes):
        key_path = ("nodes", index)
        key = "names" if table.names else "name"
        names = _expand_hosts((*key_path, key), table.names or table.name)
        # Nodes of a survey that are otherwise equal differ in values that Slurm does not need
        # (UUIDs, bus addresses).
        plain_table = replace(table, name="", names="", domain=None, gpus=_plain_gpus(table.gpus))
        if plain_table not in kinds:
            kinds[plain_table] = _read_node_kind(key_path, plain_table)
        for name in names:
            if name in nodes:
                raise BadTable((*key_path, key), f"{name} is named twice")
            nodes[name] = kinds[plain_table]
        if table.domain:
            domains.setdefault(table.domain, []).extend(names)
    if not any(kind.gpus for kind in nodes.values()):
        raise BadTable(("nodes",), "none has a GPU", 'gpus = { type = "h100", count = 8 }')
    return SiteInventory(
        nodes,
        _read_switches(file.switches, nodes),
        {name: tuple(domain_nodes) for name, domain_nodes in domains.items()},
        tuple(
            _read_partition(("partitions", index), table, nodes)
            for index, table in enumerate(file.partitions)
        ),
    )


def _plain_gpus(
    gpus: tuple[_GpuTable, ...] | _GpuCount | None,
) -> tuple[_GpuTable, ...] | _GpuCount | None:
    if not isinstance(gpus, tuple):
        return gpus
    return tuple(replace(gpu, uuid="", bus="") for gpu in gpus)


def _default_device_file(gpu_type: str, gpu_index: int) -> str:
    """Return the device file that the driver of such a GPU makes: AMD's have render nodes."""
    amd_match = re.match(r"(amd_?)?(instinct_?)?mi\d", gpu_type, re.I)
    return f"/dev/dri/renderD{128 + gpu_index}" if amd_match else f"/dev/nvidia{gpu_index}"


def _read_node_kind(key_path: KeyPath, table: _NodeTable) -> Kind:
    core_count = table.sockets * table.cores_per_socket
    numa_count = table.numa_nodes or table.sockets
    if core_count % numa_count:
        raise BadTable(key_path, f"{core_count} cores are not {numa_count} equal NUMA nodes")
    if table.core_spec_count >= core_count:
        raise BadTable(
            (*key_path, "core_spec_count"), f"{table.core_spec_count} of {core_count} cores"
        )
    for index, nic in enumerate(table.nics):
        nic_path = (*key_path, "nics", index)
        if not (nic.device or nic.interface):
            raise BadTable(nic_path, "names neither device nor interface")
        _check_numa((*nic_path, "numa"), nic.numa, numa_count)
    return Kind(
        gpus=_read_gpus((*key_path, "gpus"), table.gpus or (), core_count, numa_count),
        sockets=table.sockets,
        cores_per_socket=table.cores_per_socket,
        threads_per_core=table.threads_per_core,
        numa_nodes=numa_count,
        memory=table.memory << 20,
        features=table.features,
        nics=tuple(
            NodeNic(nic.device, nic.interface, nic.numa, index if nic.rail is None else nic.rail)
            for index, nic in enumerate(table.nics)
        ),
        core_spec_count=table.core_spec_count,
        mem_spec_limit=table.mem_spec_limit << 20,
        shards=table.shards,
        mps=table.mps,
    )


def _check_numa(key_path: KeyPath, numa_node: int, numa_count: int) -> None:
    if numa_node >= numa_count:
        raise BadTable(key_path, f"{numa_node}, but there are {numa_count} NUMA nodes")


def _read_gpus(
    key_path: KeyPath, gpus: tuple[_GpuTable, ...] | _GpuCount, core_count: int, numa_count: int
) -> tuple[NodeGpu, ...]:
    if isinstance(gpus, _GpuCount):
        gpus = _expand_gpu_count(key_path, gpus, numa_count)
    cores_per_numa = core_count // numa_count
    node_gpus = []
    for index, gpu in enumerate(gpus):
        gpu_path = (*key_path, index)
        _check_numa((*gpu_path, "numa"), gpu.numa, numa_count)
        if gpu.links and len(gpu.links) != len(gpus):
            raise BadTable((*gpu_path, "links"), f"a number for each of the {len(gpus)} GPUs")
        first_core = gpu.numa * cores_per_numa
        node_gpus.append(
            NodeGpu(
                type=gpu.type,
                file=_default_device_file(gpu.type, index) if gpu.file is None else gpu.file,
                memory=gpu.memory << 30,
                numa=gpu.numa,
                cores=tuple(range(first_core, first_core + cores_per_numa))
                if gpu.cores is None
                else _read_cores((*gpu_path, "cores"), gpu.cores, core_count),
                links=gpu.links,
            )
        )
    file_counts = Counter(gpu.file for gpu in node_gpus if gpu.file)
    if any(count > 1 for count in file_counts.values()):
        raise BadTable(key_path, "two GPUs have one device file")
    if len({bool(gpu.links) for gpu in node_gpus}) > 1:
        raise BadTable(key_path, "links are told of some GPUs and not of others")
    return tuple(node_gpus)


def _expand_gpu_count(
    key_path: KeyPath, table: _GpuCount, numa_count: int
) -> tuple[_GpuTable, ...]:
    """Return equal GPUs, spread evenly over the NUMA nodes unless the inventory gives the nodes."""
    files: Sequence[str | None] = [None] * table.count
    if isinstance(table.files, str):
        folder, _, file_names = table.files.rpartition("/")
        file_path = (*key_path, "files")
        files = [f"{folder}/{name}" for name in _expand_hosts(file_path, file_names)]
    elif table.files is not None:
        files = table.files
    numa_nodes = table.numa
    if numa_nodes is None:
        numa_nodes = tuple(index * numa_count // table.count for index in range(table.count))
    links = table.links or ((),) * table.count
    for key, column in (("files", files), ("numa", numa_nodes), ("links", links)):
        if len(column) != table.count:
            raise BadTable((*key_path, key), f"one for each of the {table.count} GPUs")
    return tuple(
        _GpuTable(type=table.type, memory=table.memory, file=file, numa=numa_node, links=row)
        for file, numa_node, row in zip(files, numa_nodes, links, strict=True)
    )


def _read_switches(tables: Sequence[_SwitchTable], nodes: Mapping[str, Kind]) -> tuple[Switch, ...]:
    switches: dict[str, Switch] = {}
    for index, table in enumerate(tables):
        key_path = ("switches", index)
        if bool(table.nodes) == bool(table.switches) or table.name in switches:
            raise BadTable(key_path, "each has a name of its own, and either nodes or switches")
        key = "nodes" if table.nodes else "switches"
        members = _expand_hosts((*key_path, key), table.nodes or table.switches)
        switches[table.name] = Switch(table.name, **{key: members})
    for switch in switches.values():
        for member in (*switch.nodes, *switch.switches):
            if member not in (nodes if switch.nodes else switches):
                raise BadTable(("switches",), f"{switch.name}: there is no {member}")
    return tuple(switches.values())


def _read_partition(
    key_path: KeyPath, table: _PartitionTable, nodes: Mapping[str, Kind]
) -> PlannedPartition:
    names = _expand_hosts((*key_path, "nodes"), table.nodes)
    for name in names:
        if name not in nodes:
            raise BadTable((*key_path, "nodes"), f"there is no {name}")
    return PlannedPartition(table.name, names, table.default, table.exclusive)


def _expand_hosts(key_path: KeyPath, host_list: str | Sequence[str]) -> tuple[str, ...]:
    try:
        return expand(host_list if isinstance(host_list, str) else ",".join(host_list))
    except BadHostList as error:
        raise BadTable(key_path, str(error), 'names such as "gpu[001-016]"') from None


def _read_cores(
    key_path: KeyPath, core_list: str | Sequence[int], core_count: int
) -> tuple[int, ...]:
    try:
        numbers = read_list(core_list) if isinstance(core_list, str) else core_list
    except ValueError:
        numbers = ()
    if not numbers or not all(0 <= core < core_count for core in numbers):
        raise BadTable(
            key_path, f"{core_list!r}: cores are numbers from 0 to {core_count - 1}", '"0-27"'
        )
    return tuple(sorted(numbers))
