"""Plans the configuration of Slurm for a GPU cluster: which files change, and their new texts.
Reads files and writes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.configure import _health_gate_script as gates
from podwright.gpu.configure import _imex as imex
from podwright.gpu.configure import _sampling_script as samples
from podwright.gpu.configure._edit_conf_lines import (
    OWN_LINE_MARK,
    OWN_LINE_SUFFIX,
    names_in,
    part,
    replaced,
    with_rows,
)
from podwright.gpu.configure._inventory import PlannedPartition, SiteInventory
from podwright.gpu.configure._inventory_conf_lines import gres_rows, node_row
from podwright.gpu.configure._per_gpu_defaults import (
    NodeShare,
    cluster_defaults,
    memory_notes,
    node_shares,
    partition_defaults,
)
from podwright.gpu.configure._topology import Topology, plan_topology, topology_notes
from podwright.hosts import fold_names
from podwright.slurm.site.conf_lines import Row, logical_lines, read_row, settings, value
from podwright.slurm.site.edit import OLD_LINE_MARK, changed, comment_out, joined, undone
from podwright.slurm.site.file_changes import FileChanges
from podwright.slurm.site.files import read
from podwright.slurm.site.releases import SlurmVersion, release_of

_OWN_LINES_HEADER = f"# GPUs, by podwright slurm configure --gpus{OWN_LINE_SUFFIX}\n"
_NEW_FILE_MARK = f"# There was no such file before.{OWN_LINE_SUFFIX}\n"
_TOPOLOGY_FILE_NAMES = ("topology.conf", "topology.yaml")
_DETECTION_VALUES = ("off", "nvml", "rsmi", "oneapi", "nrt", "nvidia")
_CONF_FILE_NAMES = ("gres.conf", *_TOPOLOGY_FILE_NAMES, "cgroup.conf")


class ConfigureOptions(NamedTuple):
    """The options that an administrator chooses.

    confine: jobs reach only their own GPUs (cgroups). imex: write the node files of each NVLink
    domain, and give each job a channel. health: a program that Slurm runs on each node every five
    minutes; empty for none. gate: our own health script, which also is Prolog and Epilog. sampling:
    sample each job's GPUs.
    """

    detect: str = "off"
    topology: str = "auto"
    confine: bool = False
    imex: bool = False
    health: str = ""
    gate: gates.GateScript | None = None
    sampling: samples.Sampling | None = None


def configure(
    conf_path: Path,
    inventory: SiteInventory,
    version: SlurmVersion,
    options: ConfigureOptions,
    resolve: Callable[[str], str] = imex.resolve_host,
) -> tuple[FileChanges, list[str]]:
    """The plan, and notes for the administrator. Raises InvalidRequest."""
    etc_folder = conf_path.parent
    base_conf = undone(read(conf_path), OWN_LINE_MARK)
    site_settings = settings(base_conf)
    _check_includes(etc_folder, base_conf, inventory)
    topology = plan_topology(inventory, version, options.topology)
    notes = [*topology_notes(topology, version), *_admin_notes(inventory, site_settings)]
    shares = node_shares(inventory, base_conf, str(conf_path))
    new_settings = _planned_settings(inventory, site_settings, topology, version, options, shares)
    counts_memory = _counts_memory(
        {
            **site_settings,
            **{key.lower(): setting for key, setting in new_settings.items()},
        }
    )
    new_settings |= cluster_defaults(shares, site_settings, counts_memory=counts_memory)
    notes += memory_notes(shares, site_settings, counts_memory=counts_memory)
    conf_text = changed(base_conf, new_settings, str(conf_path), OWN_LINE_MARK)
    conf_text = _conf_with_nodes(conf_text, inventory, str(conf_path), options.detect)

    def more(partition: PlannedPartition, row: Row) -> Row:
        values = partition_defaults(shares, partition.nodes, row, site_settings, counts_memory)
        if name := topology.of_partition(partition.nodes):
            values["Topology"] = name
        return values

    conf_text = _conf_with_partitions(conf_text, inventory, str(conf_path), more)
    file_changes = FileChanges()
    imex_files = imex.imex_texts(etc_folder, base_conf, inventory, resolve) if options.imex else {}
    notes += imex.notes([*imex_files], inventory)
    file_changes.texts.update(dict.fromkeys(imex.known(etc_folder)))
    file_changes.texts[etc_folder / "gres.conf"] = _planned_gres_conf(
        etc_folder / "gres.conf", inventory, options.detect, version, [*imex_files]
    )
    file_changes.texts.update(imex_files)  # once gres.conf says that they are ours
    file_changes.texts.update(_topology_files(etc_folder, topology, version))
    cgroup_path = etc_folder / "cgroup.conf"
    cgroup_text = undone(read(cgroup_path), OWN_LINE_MARK) if cgroup_path.exists() else ""
    if options.confine:
        file_header = (
            ""
            if cgroup_path.exists() and _NEW_FILE_MARK not in read(cgroup_path)
            else _NEW_FILE_MARK
        )
        file_changes.texts[cgroup_path] = file_header + changed(
            cgroup_text, {"ConstrainDevices": "yes"}, str(cgroup_path), OWN_LINE_MARK
        )
    elif settings(cgroup_text).get("constraindevices", "no").lower() != "yes":
        notes.append("jobs can open GPUs of other jobs: --confine sets ConstrainDevices=yes")
    if options.gate:
        file_changes.texts[options.gate.script] = gates.script(
            options.gate, conf_path, site_settings
        )
        notes += gates.notes(options.gate, site_settings)
    if options.sampling:
        file_changes.texts[options.sampling.script] = samples.script(
            options.sampling, site_settings
        )
    file_changes.texts[conf_path] = conf_text
    return file_changes, notes


def take_back(conf_path: Path) -> FileChanges:
    """The plan that restores every file byte for byte. Raises InvalidRequest."""
    file_changes = FileChanges()
    file_changes.texts.update(
        dict.fromkeys(
            (
                *imex.known(conf_path.parent),
                *gates.known(conf_path),
                *samples.known(conf_path),
            )
        )
    )
    for path in (*(conf_path.parent / name for name in _CONF_FILE_NAMES), conf_path):
        if not path.exists():
            continue
        text = read(path)
        if any(
            line.startswith(OLD_LINE_MARK) and line.endswith(OWN_LINE_SUFFIX + "\n")
            for line in _split_lines(text)
        ):
            raise InvalidRequest(
                "native mode was set up after the GPUs, and changed the same lines",
                operation=f"take the GPUs back out of {path}",
                would_work="podwright slurm configure --undo first",
            )
        if OWN_LINE_SUFFIX in text:
            file_changes.texts[path] = (
                None if _NEW_FILE_MARK in text else undone(text, OWN_LINE_MARK)
            )
    return file_changes


def _split_lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _topology_files(
    etc_folder: Path, topology: Topology, version: SlurmVersion
) -> dict[Path, str | None]:
    """Both topology files: the new text of the one that Slurm is to read, and the other one without
    our lines."""
    new_files = topology.files()
    new_texts: dict[Path, str | None] = {}
    for file_name in _TOPOLOGY_FILE_NAMES:
        path = etc_folder / file_name
        present_text = read(path) if path.exists() else ""
        if file_name in new_files:
            new_texts[path] = _own_file_text(path, new_files[file_name])
        elif OWN_LINE_SUFFIX in present_text:
            new_texts[path] = (
                None if _NEW_FILE_MARK in present_text else undone(present_text, OWN_LINE_MARK)
            )
    yaml_path = etc_folder / "topology.yaml"
    yaml_text = new_texts.get(yaml_path, read(yaml_path) if yaml_path.exists() else None)
    if (
        new_files
        and yaml_text is not None
        and yaml_path.name not in new_files
        and release_of(version).several_topologies
    ):
        raise InvalidRequest(
            f"{yaml_path} is there, so Slurm would not read topology.conf",
            operation=f"--topology={topology.kind}",
            would_work="--topology=none, which leaves the network as it is; or move it away",
        )
    return new_texts


def _admin_notes(inventory: SiteInventory, site_settings: Mapping[str, str]) -> list[str]:
    notes = []
    for partition in inventory.partitions:
        gres_kinds = {inventory.nodes[name].gres for name in partition.nodes} - {""}
        if partition.exclusive and len(gres_kinds) > 1:
            # Seen on 22.05.8 and 24.11.5: more switches than needed; --switches=1 did not start.
            notes.append(
                f"partition {partition.name} is exclusive and mixes "
                f"{' and '.join(sorted(gres_kinds))}: "
                "Slurm does not keep such jobs on one switch; give each kind a partition of its own"
            )
    select_type = site_settings.get("selecttype", "")
    if select_type and not select_type.endswith("cons_tres"):
        notes.append(
            f"SelectType was {select_type}: running jobs end when slurmctld starts with another"
        )
    mps_nodes = [name for name, kind in inventory.nodes.items() if kind.mps and len(kind.gpus) > 1]
    if mps_nodes:
        notes.append(
            f"jobs with --gres=mps share one GPU of a node at a time, so {fold_names(mps_nodes)} "
            "leaves the others idle: shards are given out of all GPUs"
        )
    numa_per_socket = {kind.numa_nodes // kind.sockets for kind in inventory.kinds()} - {0, 1}
    if numa_per_socket:
        notes.append("several NUMA nodes on a socket: Slurm places by socket, so nearest is coarse")
    return notes


def _planned_settings(
    inventory: SiteInventory,
    site_settings: Mapping[str, str],
    topology: Topology,
    version: SlurmVersion,
    options: ConfigureOptions,
    shares: Mapping[str, NodeShare],
) -> dict[str, str]:
    shared_gres = sorted(
        {gres_name for kind in inventory.kinds() for gres_name in kind.shared_gres}
    )
    new_settings = {"GresTypes": joined(site_settings.get("grestypes", ""), "gpu", *shared_gres)}
    if not site_settings.get("selecttype", "").endswith("cons_tres"):
        new_settings["SelectType"] = "select/cons_tres"
        # Slurm takes a node of unknown memory to have 1 MiB, so memory is not counted then.
        memory_known = all(share.memory_per_gpu for share in shares.values())
        new_settings["SelectTypeParameters"] = "CR_Core_Memory" if memory_known else "CR_Core"
    if topology.plugin:
        new_settings["TopologyPlugin"] = topology.plugin
    if "slurmdbd" in site_settings.get("accountingstoragetype", ""):
        new_settings["AccountingStorageTRES"] = joined(
            site_settings.get("accountingstoragetres", ""), "gres/gpu"
        )
    if options.confine:
        new_settings["ProctrackType"] = "proctrack/cgroup"
        task_plugins = [
            plugin
            for plugin in site_settings.get("taskplugin", "").split(",")
            if plugin and plugin != "task/none"
        ]
        new_settings["TaskPlugin"] = joined(",".join(task_plugins), "task/cgroup", "task/affinity")
    if options.imex and release_of(version).imex_switch:
        new_settings["SwitchType"] = "switch/nvidia_imex"
    if options.gate:
        new_settings |= gates.settings_of(options.gate, site_settings)
    if options.sampling:
        new_settings |= samples.settings_of(options.sampling)
    if options.health:
        new_settings |= {"HealthCheckProgram": options.health, "HealthCheckInterval": "300"}
        new_settings["HealthCheckNodeState"] = "ANY"
    return {
        setting_name: setting_value
        for setting_name, setting_value in new_settings.items()
        if site_settings.get(setting_name.lower()) != setting_value
    }


def _counts_memory(slurm_settings: Mapping[str, str]) -> bool:
    """Whether Slurm counts memory. Without SelectTypeParameters it may (select/cons_tres, from
    24.05)."""
    parameters = slurm_settings.get("selecttypeparameters", "").lower()
    return "memory" in parameters or not parameters


def _conf_with_nodes(
    conf_text: str, inventory: SiteInventory, conf_path: str, detection_mode: str
) -> str:
    seen_nodes: set[str] = set()

    def rows(row: Row, node_names: tuple[str, ...]) -> list[Row] | None:
        chosen_names = [name for name in node_names if name in inventory.nodes]
        if not chosen_names:
            return None
        seen_nodes.update(chosen_names)
        new_rows = []
        names_by_kind: dict[int, list[str]] = {}
        for node_name in chosen_names:
            names_by_kind.setdefault(id(inventory.nodes[node_name]), []).append(node_name)
        for group_names in names_by_kind.values():
            cut_row = part(row, node_names, group_names, "NodeName")
            new_rows.append(node_row(cut_row, inventory.nodes[group_names[0]], detection_mode))
        if other_names := [name for name in node_names if name not in inventory.nodes]:
            new_rows.append(part(row, node_names, other_names, "NodeName"))
        return new_rows

    conf_text = replaced(conf_text, "NodeName", rows, conf_path)
    added_rows = [
        node_row({"NodeName": fold_names(added_names)}, node_kind, detection_mode)
        for node_kind, node_names in inventory.kinds().items()
        if (added_names := [name for name in node_names if name not in seen_nodes])
    ]
    return with_rows(conf_text, added_rows)


def _conf_with_partitions(
    conf_text: str,
    inventory: SiteInventory,
    conf_path: str,
    extra_values_of: Callable[[PlannedPartition, Row], Row],
) -> str:
    """extra_values_of: what else a partition's line says, by the partition and its line."""
    wanted_partitions = {partition.name: partition for partition in inventory.partitions}
    has_partitions = False
    covered_nodes: set[str] = set()
    for _, line in logical_lines(conf_text):
        row = read_row(line)
        if value(row, "PartitionName").upper() not in ("", "DEFAULT"):
            has_partitions = True
            node_list = value(row, "Nodes")
            covers_all = node_list.upper() == "ALL" or not node_list
            covered_nodes |= set(inventory.nodes if covers_all else names_in(node_list, conf_path))
    if not wanted_partitions:
        for name, with_gpus in (("gpu", True), ("cpu", False)):
            members = tuple(
                node for node, kind in inventory.nodes.items() if bool(kind.gpus) == with_gpus
            )
            if not set(members) <= covered_nodes:
                default = with_gpus and not has_partitions
                wanted_partitions[name] = PlannedPartition(name, members, default=default)

    def rows(row: Row, node_names: tuple[str, ...]) -> list[Row] | None:
        partition = wanted_partitions.pop(value(row, "PartitionName"), None)
        return (
            [_partition_row(partition, row, extra_values_of(partition, row))] if partition else None
        )

    conf_text = replaced(conf_text, "PartitionName", rows, conf_path)
    return with_rows(
        conf_text,
        [
            _partition_row(
                planned, row := {"PartitionName": planned.name}, extra_values_of(planned, row)
            )
            for planned in wanted_partitions.values()
        ],
    )


def _partition_row(partition: PlannedPartition, row: Row, extra_values: Row) -> Row:
    own_keys = [
        "nodes",
        "oversubscribe",
        "state",
        *(extra_key.lower() for extra_key in extra_values),
    ]
    own_keys += ["default"] if partition.default else []
    new_row = {
        row_key: row_value for row_key, row_value in row.items() if row_key.lower() not in own_keys
    }
    new_row["Nodes"] = fold_names(partition.nodes)
    if partition.default:
        new_row["Default"] = "YES"
    if partition.exclusive:
        new_row["OverSubscribe"] = "EXCLUSIVE"
    new_row |= extra_values
    new_row["State"] = value(row, "state") or "UP"
    return new_row


def _planned_gres_conf(
    gres_path: Path,
    inventory: SiteInventory,
    detection_mode: str,
    version: SlurmVersion,
    imex_files: Sequence[Path],
) -> str:
    """gres.conf with the GPUs of the inventory's nodes. Its lines about other nodes and other GRES
    stay."""
    old_text = undone(read(gres_path), OWN_LINE_MARK) if gres_path.exists() else ""
    planned_names = {
        node_name: {"gpu", "", *kind.shared_gres} for node_name, kind in inventory.nodes.items()
    }
    new_lines = []
    for physical_lines, line in logical_lines(old_text):
        row = read_row(line)
        _check_detection(value(row, "AutoDetect"), line, gres_path)
        node_list, gres_name = value(row, "NodeName"), value(row, "Name").lower()
        is_gpu_row = bool(row) and any(gres_name in names for names in planned_names.values())
        if is_gpu_row and node_list:
            node_names = names_in(node_list, str(gres_path))
            other_names = [
                node_name
                for node_name in node_names
                if gres_name not in planned_names.get(node_name, ())
            ]
            if len(other_names) < len(node_names):
                new_lines += comment_out(physical_lines, OWN_LINE_MARK)
                if other_names:
                    new_lines.append(
                        with_rows("", [part(row, node_names, other_names, "NodeName")])
                    )
                continue
        elif is_gpu_row and value(row, "Name"):  # of all nodes that have GPUs
            new_lines += comment_out(physical_lines, OWN_LINE_MARK)
            continue
        new_lines += physical_lines
    kept_text = "".join(new_lines)
    header = (
        _OWN_LINES_HEADER
        if gres_path.exists() and _NEW_FILE_MARK not in read(gres_path)
        else _NEW_FILE_MARK + _OWN_LINES_HEADER
    )
    return (
        header
        + imex.node_files_remark(imex_files)
        + with_rows(kept_text, gres_rows(inventory, detection_mode, version))
    )


def _check_detection(detection: str, line: str, gres_path: Path) -> None:
    """Raises InvalidRequest where AutoDetect= has a value that no Slurm has."""
    if detection and detection.lower() not in _DETECTION_VALUES:
        raise InvalidRequest(
            f"{gres_path}: AutoDetect={detection} is no way to detect GPUs ({line.strip()[:80]})",
            operation="configure Slurm",
            would_work=f"AutoDetect= with one of {', '.join(_DETECTION_VALUES)}",
        )


def _own_file_text(path: Path, new_lines: Sequence[str]) -> str:
    """The text of a file that belongs to us alone."""
    has_site_lines = path.exists() and _NEW_FILE_MARK not in read(path)
    old_text = undone(read(path), OWN_LINE_MARK) if has_site_lines else ""
    header = _OWN_LINES_HEADER if has_site_lines else _NEW_FILE_MARK + _OWN_LINES_HEADER
    own_lines = "".join(f"{line}{OWN_LINE_SUFFIX}\n" for line in new_lines)
    return header + "".join(comment_out(_split_lines(old_text), OWN_LINE_MARK)) + own_lines


def _check_includes(etc_folder: Path, conf_text: str, inventory: SiteInventory) -> None:
    """Raises InvalidRequest where an included file has lines that we would have to change."""
    for line in conf_text.splitlines():
        line_words = line.split()
        if (
            len(line_words) < 2
            or line_words[0].lower() != "include"
            or not (etc_folder / line_words[1]).exists()
        ):
            continue
        for _, included_line in logical_lines(read(etc_folder / line_words[1])):
            row = read_row(included_line)
            node_list = value(row, "NodeName")
            if node_list and set(names_in(node_list, line_words[1])) & set(inventory.nodes):
                raise InvalidRequest(
                    f"{line_words[1]}, included by slurm.conf, has the line of {node_list}",
                    operation="configure Slurm",
                    would_work="move the lines of GPU nodes into slurm.conf",
                )
