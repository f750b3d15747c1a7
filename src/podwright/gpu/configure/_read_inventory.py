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
from podwright.gpu.configure._survey_to_inventory import survey_tables
from podwright.hosts import BadHostList, expand, read_list

_WORD_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: A GPU's type, in the form of Slurm's GRES. MIG's types begin with a digit (1g.10gb). Slurm would
#: read a bare number, or one with its multiples behind it (2k), as a count.
_GPU_TYPE_PATTERN = re.compile(r"(?!\d+[kmgtp]?$)[A-Za-z0-9_][A-Za-z0-9_.+-]*", re.IGNORECASE)
_DEVICE_FILE_PATTERN = re.compile(r"/[A-Za-z0-9/_.:+-]+(,/[A-Za-z0-9/_.:+-]+)*")
_NIC_PATTERN = re.compile(r"[A-Za-z0-9_.:-]+")
_TOP_KEYS = ("survey", "nodes", "switches", "partitions")
_NODE_KEYS = (
    *("name", "names", "sockets", "cores_per_socket", "threads_per_core", "numa_nodes", "memory"),
    *("features", "domain", "gpus", "nics", "core_spec_count", "mem_spec_limit", "shards", "mps"),
)
_GPU_KEYS = ("type", "file", "memory", "numa", "cores", "links", "uuid", "bus")
_GPU_COUNT_KEYS = ("type", "count", "files", "memory", "numa", "links")


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


def make_inventory(
    inventory_tree: Mapping[str, Any], file_label: str = "inventory"
) -> SiteInventory:
    """The inventory that a tree of tables describes. Raises InvalidRequest."""
    return _InventoryReader(file_label).inventory(inventory_tree)


def _without_identity(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Mapping) and "uuid" in value[0]:
        return [
            {key: entry_value for key, entry_value in entry.items() if key not in ("uuid", "bus")}
            if isinstance(entry, Mapping)
            else entry
            for entry in value
        ]
    return value


def _default_device_file(gpu_table: Mapping[str, Any], gpu_index: int) -> str:
    """Return the device file that the driver of such a GPU makes: AMD's have render nodes."""
    amd_match = re.match(r"(amd_?)?(instinct_?)?mi\d", str(gpu_table.get("type", "")), re.I)
    return f"/dev/dri/renderD{128 + gpu_index}" if amd_match else f"/dev/nvidia{gpu_index}"


class _InventoryReader:
    def __init__(self, file_label: str) -> None:
        self.file = file_label
        self._kinds: dict[str, Kind] = {}

    def fail(self, key_path: str, problem: str, would_work: str = "") -> InvalidRequest:
        return InvalidRequest(
            f"{self.file}: {key_path} {problem}",
            operation="read the inventory",
            would_work=would_work,
        )

    def inventory(self, inventory_tree: Any) -> SiteInventory:
        self._check_keys("the file", inventory_tree, _TOP_KEYS)
        nodes: dict[str, Kind] = {}
        domains: dict[str, list[str]] = {}
        for node_index, node_table in enumerate(
            self._check_table_list("nodes", inventory_tree.get("nodes"))
        ):
            key_path = f"nodes[{node_index}]"
            self._check_keys(key_path, node_table, _NODE_KEYS)
            node_names = self._expand_hosts(
                f"{key_path}.names", node_table.get("names") or node_table.get("name")
            )
            node_kind = self._read_node_kind(key_path, node_table)
            for name in node_names:
                if name in nodes:
                    raise self.fail(f"{key_path}.names:", f"{name} is named twice")
                nodes[name] = node_kind
            if domain := node_table.get("domain"):
                domains.setdefault(self._check_word(f"{key_path}.domain", domain), []).extend(
                    node_names
                )
        if not nodes:
            raise self.fail("nodes:", "there are none", "a table [[nodes]] for each kind of node")
        if not any(kind.gpus for kind in nodes.values()):
            raise self.fail("nodes:", "none has a GPU", 'gpus = { type = "h100", count = 8 }')
        return SiteInventory(
            nodes,
            self._read_switches(inventory_tree.get("switches", []), nodes),
            {name: tuple(domain_nodes) for name, domain_nodes in domains.items()},
            self._read_partitions(inventory_tree.get("partitions", []), nodes),
        )

    def _read_node_kind(self, key_path: str, node_table: Mapping[str, Any]) -> Kind:
        # Nodes of a survey that are otherwise equal differ in values that Slurm does not need
        # (UUIDs, bus addresses).
        equality_key = repr(
            [_without_identity(node_table.get(key)) for key in _NODE_KEYS[2:] if key != "domain"]
        )
        if equality_key in self._kinds:
            return self._kinds[equality_key]
        sockets = self._check_number(f"{key_path}.sockets", node_table.get("sockets"))
        cores_per_socket = self._check_number(
            f"{key_path}.cores_per_socket", node_table.get("cores_per_socket")
        )
        numa_count = self._check_number(
            f"{key_path}.numa_nodes", node_table.get("numa_nodes", sockets)
        )
        if sockets * cores_per_socket % numa_count:
            raise self.fail(
                f"{key_path}:",
                f"{sockets * cores_per_socket} cores are not {numa_count} equal NUMA nodes",
            )
        core_spec_count = self._check_number(
            f"{key_path}.core_spec_count", node_table.get("core_spec_count", 0), least=0
        )
        if core_spec_count >= sockets * cores_per_socket:
            raise self.fail(
                f"{key_path}.core_spec_count:",
                f"{core_spec_count} of {sockets * cores_per_socket} cores",
            )
        node_kind = Kind(
            gpus=self._read_gpus(
                f"{key_path}.gpus", node_table.get("gpus"), sockets * cores_per_socket, numa_count
            ),
            sockets=sockets,
            cores_per_socket=cores_per_socket,
            threads_per_core=self._check_number(
                f"{key_path}.threads_per_core", node_table.get("threads_per_core", 1)
            ),
            numa_nodes=numa_count,
            memory=self._check_number(f"{key_path}.memory", node_table.get("memory", 0), least=0)
            << 20,
            features=tuple(
                self._check_word(f"{key_path}.features", feature)
                for feature in self._list(f"{key_path}.features", node_table.get("features", []))
            ),
            nics=tuple(
                self._read_nic(f"{key_path}.nics[{index}]", nic, index, numa_count)
                for index, nic in enumerate(
                    self._list(f"{key_path}.nics", node_table.get("nics", []))
                )
            ),
            core_spec_count=core_spec_count,
            mem_spec_limit=self._check_number(
                f"{key_path}.mem_spec_limit", node_table.get("mem_spec_limit", 0), least=0
            )
            << 20,
            shards=self._check_number(f"{key_path}.shards", node_table.get("shards", 0), least=0),
            mps=self._check_number(f"{key_path}.mps", node_table.get("mps", 0), least=0),
        )
        self._kinds[equality_key] = node_kind
        return node_kind

    def _read_gpus(
        self, key_path: str, gpu_entries: Any, core_count: int, numa_count: int
    ) -> tuple[NodeGpu, ...]:
        if isinstance(gpu_entries, Mapping):
            gpu_entries = self._expand_gpu_count(key_path, gpu_entries, numa_count)
        if gpu_entries is None:  # a node of CPUs alone
            return ()
        if not isinstance(gpu_entries, list):
            raise self.fail(key_path, "is no list of GPUs", 'gpus = { type = "h100", count = 8 }')
        cores_per_numa = core_count // numa_count
        gpus = []
        for gpu_index, gpu_entry in enumerate(gpu_entries):
            entry_path = f"{key_path}[{gpu_index}]"
            self._check_keys(entry_path, gpu_entry, _GPU_KEYS)
            numa_node = self._check_number(f"{entry_path}.numa", gpu_entry.get("numa", 0), least=0)
            if numa_node >= numa_count:
                raise self.fail(
                    f"{entry_path}.numa:", f"{numa_node}, but there are {numa_count} NUMA nodes"
                )
            core_list = gpu_entry.get("cores")
            own_cores = (
                self._read_cores(f"{entry_path}.cores", core_list, core_count)
                if core_list is not None
                else ()
            )
            links = tuple(self._list(f"{entry_path}.links", gpu_entry.get("links", [])))
            if links and (
                len(links) != len(gpu_entries)
                or not all(type(link_count) is int for link_count in links)
            ):
                raise self.fail(
                    f"{entry_path}.links:", f"a number for each of the {len(gpu_entries)} GPUs"
                )
            gpus.append(
                NodeGpu(
                    type=self._check_gpu_type(f"{entry_path}.type", gpu_entry.get("type")),
                    file=self._check_device_file(
                        f"{entry_path}.file",
                        gpu_entry.get("file", _default_device_file(gpu_entry, gpu_index)),
                    ),
                    memory=self._check_number(
                        f"{entry_path}.memory", gpu_entry.get("memory", 0), least=0
                    )
                    << 30,
                    numa=numa_node,
                    cores=own_cores
                    or tuple(range(numa_node * cores_per_numa, (numa_node + 1) * cores_per_numa)),
                    links=links,
                )
            )
        device_files = [gpu.file for gpu in gpus if gpu.file]
        if len(set(device_files)) < len(device_files):
            raise self.fail(key_path, "two GPUs have one device file")
        if any(gpu.links for gpu in gpus) and not all(gpu.links for gpu in gpus):
            raise self.fail(key_path, "links are told of some GPUs and not of others")
        return tuple(gpus)

    def _expand_gpu_count(
        self, key_path: str, gpu_table: Mapping[str, Any], numa_count: int
    ) -> list[dict[str, Any]]:
        """Return equal GPUs, spread evenly over the NUMA nodes unless the inventory gives the
        nodes.
        """
        self._check_keys(key_path, gpu_table, _GPU_COUNT_KEYS)
        gpu_count = self._check_number(f"{key_path}.count", gpu_table.get("count"))
        default_files = [_default_device_file(gpu_table, index) for index in range(gpu_count)]
        files = (
            self._expand_files(f"{key_path}.files", gpu_table["files"])
            if "files" in gpu_table
            else default_files
        )
        numa_nodes = gpu_table.get(
            "numa", [index * numa_count // gpu_count for index in range(gpu_count)]
        )
        links = gpu_table.get("links", [])
        for key, column_values in (
            ("files", files),
            ("numa", numa_nodes),
            ("links", links or files),
        ):
            if not isinstance(column_values, list) or len(column_values) != gpu_count:
                raise self.fail(f"{key_path}.{key}:", f"one for each of the {gpu_count} GPUs")
        link_rows = [{"links": row} for row in links] or [{}] * gpu_count
        common_values = {key: gpu_table[key] for key in ("type", "memory") if key in gpu_table}
        return [
            {**common_values, "file": file, "numa": node, **row}
            for file, node, row in zip(files, numa_nodes, link_rows, strict=True)
        ]

    def _read_nic(self, key_path: str, nic_table: Any, nic_index: int, numa_count: int) -> NodeNic:
        self._check_keys(key_path, nic_table, ("device", "interface", "numa", "rail"))
        nic_names = [nic_table.get("device", ""), nic_table.get("interface", "")]
        for name in nic_names:
            if not isinstance(name, str) or (name and not _NIC_PATTERN.fullmatch(name)):
                raise self.fail(
                    key_path, f"{name!r} is not a network card", '{ device = "mlx5_0" }'
                )
        if not any(nic_names):
            raise self.fail(key_path, "names neither device nor interface")
        numa_node = self._check_number(f"{key_path}.numa", nic_table.get("numa", 0), least=0)
        if numa_node >= numa_count:
            raise self.fail(
                f"{key_path}.numa:", f"{numa_node}, but there are {numa_count} NUMA nodes"
            )
        rail = self._check_number(f"{key_path}.rail", nic_table.get("rail", nic_index), least=0)
        return NodeNic(nic_names[0], nic_names[1], numa_node, rail)

    def _read_switches(self, switch_tables: Any, nodes: Mapping[str, Kind]) -> tuple[Switch, ...]:
        switches: dict[str, Switch] = {}
        for switch_index, switch_table in enumerate(
            self._check_table_list("switches", switch_tables)
        ):
            key_path = f"switches[{switch_index}]"
            self._check_keys(key_path, switch_table, ("name", "nodes", "switches"))
            switch_name = self._check_word(f"{key_path}.name", switch_table.get("name"))
            member_keys = [key for key in ("nodes", "switches") if switch_table.get(key)]
            if len(member_keys) != 1 or switch_name in switches:
                raise self.fail(
                    key_path, "each has a name of its own, and either nodes or switches"
                )
            members = self._expand_hosts(
                f"{key_path}.{member_keys[0]}", switch_table[member_keys[0]]
            )
            switches[switch_name] = Switch(switch_name, **{member_keys[0]: members})
        for switch in switches.values():
            for member in (*switch.nodes, *switch.switches):
                if member not in (nodes if switch.nodes else switches):
                    raise self.fail(f"switch {switch.name}:", f"there is no {member}")
        return tuple(switches.values())

    def _read_partitions(
        self, partition_tables: Any, nodes: Mapping[str, Kind]
    ) -> tuple[PlannedPartition, ...]:
        partitions = []
        for partition_index, partition_table in enumerate(
            self._check_table_list("partitions", partition_tables)
        ):
            key_path = f"partitions[{partition_index}]"
            self._check_keys(key_path, partition_table, ("name", "nodes", "default", "exclusive"))
            node_names = self._expand_hosts(f"{key_path}.nodes", partition_table.get("nodes"))
            for name in node_names:
                if name not in nodes:
                    raise self.fail(f"{key_path}.nodes:", f"there is no {name}")
            flags = [partition_table.get(key, False) for key in ("default", "exclusive")]
            if not all(isinstance(flag, bool) for flag in flags):
                raise self.fail(key_path, "default and exclusive are true or false")
            partitions.append(
                PlannedPartition(
                    self._check_word(f"{key_path}.name", partition_table.get("name")),
                    node_names,
                    *flags,
                )
            )
        return tuple(partitions)

    # Single values

    def _check_keys(self, key_path: str, table: Any, known_keys: Sequence[str]) -> None:
        if not isinstance(table, Mapping):
            raise self.fail(key_path, "is not a table")
        for key in table:
            if key not in known_keys:
                raise self.fail(
                    f"{key_path}:",
                    f"{key} is not a key of this table",
                    f"one of {', '.join(known_keys)}",
                )

    def _check_table_list(self, table_key: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(f"{table_key}:", "is not a list of tables", f"[[{table_key}]]")
        return value

    def _list(self, key_path: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(key_path, f"is {value!r}, and not a list")
        return value

    def _expand_hosts(self, key_path: str, host_list: Any) -> tuple[str, ...]:
        if isinstance(host_list, list) and all(isinstance(host, str) for host in host_list):
            host_list = ",".join(host_list)
        if not isinstance(host_list, str) or not host_list:
            raise self.fail(key_path, "names none", 'names such as "gpu[001-016]"')
        try:
            return expand(host_list)
        except BadHostList as error:
            raise self.fail(f"{key_path}:", str(error)) from None

    def _expand_files(self, key_path: str, file_list: Any) -> list[str]:
        if isinstance(file_list, list):
            return file_list
        folder, _, file_names = str(file_list).rpartition("/")
        return [f"{folder}/{name}" for name in self._expand_hosts(key_path, file_names)]

    def _check_device_file(self, key_path: str, file_path: Any) -> str:
        if not isinstance(file_path, str) or (
            file_path and not _DEVICE_FILE_PATTERN.fullmatch(file_path)
        ):
            raise self.fail(key_path, f"{file_path!r} is not a device file", '"/dev/nvidia0"')
        return file_path

    def _read_cores(self, key_path: str, core_list: Any, core_count: int) -> tuple[int, ...]:
        try:
            numbers = read_list(core_list) if isinstance(core_list, str) else list(core_list)
            bad_cores = [
                core for core in numbers if type(core) is not int or not 0 <= core < core_count
            ]
        except (TypeError, ValueError):
            bad_cores = [-1]
            numbers = []
        if bad_cores or not numbers:
            raise self.fail(
                key_path, f"{core_list!r}: cores are numbers from 0 to {core_count - 1}", '"0-27"'
            )
        return tuple(sorted(numbers))

    def _check_number(self, key_path: str, value: Any, least: int = 1) -> int:
        if type(value) is not int or value < least:
            raise self.fail(key_path, f"is {value!r}, and no number of {least} or more")
        return value

    def _check_gpu_type(self, key_path: str, value: Any) -> str:
        if not isinstance(value, str) or not _GPU_TYPE_PATTERN.fullmatch(value):
            raise self.fail(
                key_path, f"{value!r}: a GPU type of letters, digits, _ . + and - is wanted"
            )
        return value

    def _check_word(self, key_path: str, value: Any) -> str:
        if not isinstance(value, str) or not _WORD_PATTERN.fullmatch(value):
            raise self.fail(key_path, f"{value!r}: a word of letters, digits, _ . and - is wanted")
        return value
