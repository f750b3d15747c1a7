"""A site's settings, nodes and partitions as keys of slurm.conf, from either of two sources.

The sources are the text of slurm.conf itself, and what scontrol prints of a running cluster. Both
end in one value, so that what a twin takes over is decided in one place (`_twin_conf`). Pure.

What makes the size of a node, and its state, comes from `slurm.reader`, so a field of these that a
release of scontrol renames is not known and ends the reading. Other keys are taken as printed, and
a key that `_twin_conf` does not list is left out. If a release renames one of these fields, it
needs its key of slurm.conf here: otherwise the twin has Slurm's default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from podwright.errors import InvalidRequest
from podwright.hosts import expand_names
from podwright.slurm.reader import SlurmNode, node_state, read_nodes
from podwright.slurm.site.conf_lines import logical_lines, read_row
from podwright.slurm.twin._twin_types import SiteFiles

_UNSET_VALUES = ("", "(null)", "NONE", "UNLIMITED", "(null type)", "n/a", "N/A")
#: Fields of `scontrol show node`, in the words of any release, and their keys in slurm.conf where
#: these differ.
_CONF_KEY_BY_NODE_FIELD = {"AvailableFeatures": "Feature", "CPUSpecList": "CpuSpecList"}


@dataclass
class SiteConf:
    """A site's configuration.

    settings: keys of slurm.conf in lower case. nodes, partitions: by name, each with its keys as
    written. sets: the lines of node sets. unused: nodes that no job can get now.
    """

    settings: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    partitions: dict[str, dict[str, str]] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


def read_site_conf(site: SiteFiles) -> SiteConf:
    """Return the site's configuration.

    Raises InvalidRequest where no node is described, FieldNotKnown where scontrol does not show the
    size or the state of one.
    """
    site_conf = _parse_slurm_conf(site.slurm_conf) if site.slurm_conf else _conf_from_scontrol(site)
    if not site_conf.nodes:
        raise InvalidRequest(
            "no node is described",
            would_work="Give slurm.conf, or the output of `scontrol show node`",
        )
    return site_conf


def _scontrol_fields(line: str) -> dict[str, str]:
    """Return the fields of a line of scontrol. A field may be empty."""
    key_values = re.findall(r'([A-Za-z_]\w*)=("[^"]*"|\S*)', line)
    return {key: value.strip('"') for key, value in key_values}


def _parse_slurm_conf(conf_text: str) -> SiteConf:
    site_conf = SiteConf()
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for _, line in logical_lines(conf_text):
        key, equals_sign, value = line.partition("=")
        line_kind = key.strip().lower()
        if not equals_sign:
            continue
        if line_kind not in (*defaults, "nodeset"):
            site_conf.settings[line_kind] = value.strip().strip('"')
            continue
        if line_kind == "nodeset":
            site_conf.sets.append(line)
            continue
        fields = {key: text.strip('"') for key, text in read_row(line).items()}
        entry_names = fields.pop(next(iter(fields)))
        if entry_names.upper() == "DEFAULT":
            defaults[line_kind] |= fields
            continue
        for name in expand_names(entry_names):
            if line_kind == "nodename":
                _add_node(site_conf, name, defaults[line_kind] | fields)
            else:
                site_conf.partitions[name] = defaults[line_kind] | fields
    return site_conf


def _add_node(site_conf: SiteConf, node_name: str, fields: dict[str, str]) -> None:
    flags = node_state(next((fields[key] for key in fields if key.lower() == "state"), ""))
    if "FUTURE" in flags.words:
        return
    site_conf.nodes[node_name] = fields
    # UNKNOWN is the default in slurm.conf: slurmctld asks the node.
    if not flags._replace(words=flags.words - {"UNKNOWN"}).takes_jobs:
        site_conf.unused.append(node_name)


def _conf_from_scontrol(site: SiteFiles) -> SiteConf:
    site_conf = SiteConf()
    for line in site.config.splitlines():
        key, equals_sign, value = line.partition("=")
        if equals_sign and value.strip() not in _UNSET_VALUES:
            # scontrol adds units: `OverTimeLimit = 0 min`
            site_conf.settings[key.strip().lower()] = value.split()[0]
    defaults = site_conf.settings.pop("jobdefaults", "")
    for default in defaults.split(","):
        key, _, value = default.partition("=")
        if value:
            site_conf.settings[key.lower()] = value
    for node in read_nodes(site.nodes):
        site_conf.nodes[node.name] = _node_conf_fields(node)
        if not node.state.takes_jobs:
            site_conf.unused.append(node.name)
    for line in site.partitions.splitlines():
        fields = _scontrol_fields(line)
        if fields.get("PartitionName"):
            site_conf.partitions[fields.pop("PartitionName")] = _partition_conf_fields(fields)
    return site_conf


def _node_conf_fields(node: SlurmNode) -> dict[str, str]:
    """Return a node's keys of slurm.conf. Raises FieldNotKnown where its size is not shown."""
    fields = {
        _CONF_KEY_BY_NODE_FIELD.get(key, key): value
        for key, value in _scontrol_fields(node.line).items()
        if value not in _UNSET_VALUES
    }
    fields |= {
        "CPUs": str(node.cpus),
        "Sockets": str(node.sockets),
        "CoresPerSocket": str(node.cores_per_socket),
        "ThreadsPerCore": str(node.threads_per_core),
        "RealMemory": str(node.memory_mib),
    }
    if node.cpus == node.sockets * node.cores_per_socket * node.threads_per_core:
        fields.pop("CPUs")
    if fields.get("CoreSpecCount", "0") != "0":
        fields.pop("CpuSpecList", None)  # scontrol shows which cores Slurm chose
    for key in ("CoreSpecCount", "MemSpecLimit"):
        if fields.get(key) == "0":
            fields.pop(key)
    return fields


def _partition_conf_fields(printed_fields: dict[str, str]) -> dict[str, str]:
    fields = {key: value for key, value in printed_fields.items() if value not in _UNSET_VALUES}
    # Since 25.05 scontrol shows OverSubscribe=EXCLUSIVE as a field of its own.
    exclusive = fields.pop("Exclusive", "NO")
    if exclusive not in ("NO", "USER", "TOPO"):
        fields["OverSubscribe"] = "EXCLUSIVE"
    elif exclusive == "USER":
        fields["ExclusiveUser"] = "YES"
    for default in fields.pop("JobDefaults", "").split(","):
        key, _, value = default.partition("=")
        if value:
            fields[key] = value
    return fields
