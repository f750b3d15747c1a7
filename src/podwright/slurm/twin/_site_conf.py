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
from collections.abc import Iterable
from dataclasses import dataclass, field

from podwright.errors import InvalidRequest
from podwright.slurm.reader import SlurmNode, node_state, read_nodes
from podwright.slurm.twin._values import SiteFiles

_UNSET = ("", "(null)", "NONE", "UNLIMITED", "(null type)", "n/a", "N/A")
#: Fields of `scontrol show node`, in the words of any release, and their keys in slurm.conf where
#: these differ.
_NODE_KEYS = {"AvailableFeatures": "Feature", "CPUSpecList": "CpuSpecList"}


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
    conf = _from_text(site.slurm_conf) if site.slurm_conf else _from_scontrol(site)
    if not conf.nodes:
        raise InvalidRequest(
            "no node is described",
            would_work="Give slurm.conf, or the output of `scontrol show node`",
        )
    return conf


def expand(text: str) -> list[str]:
    """Return the names in `n[1-3,7],m2`, in order. Raises InvalidRequest for what is not such a
    list.
    """
    names: list[str] = []
    for part in re.findall(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", text):
        if part:
            names += _expand_part(part)
    return list(dict.fromkeys(names))


def fold_names(names: Iterable[str]) -> str:
    """Return the inverse of `expand`: `n[1-3],m2`, with one range of numbers at a name's end."""
    numbered: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in names:
        match = re.fullmatch(r"(.*?)(\d{1,9})", name)
        if match:
            numbered.setdefault((match[1], len(match[2])), []).append(int(match[2]))
        else:
            plain.append(name)
    for (head, width), numbers in numbered.items():
        ranges = _ranges(sorted(set(numbers)))
        texts = [
            f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"
            for low, high in ranges
        ]
        alone = len(texts) == 1 and "-" not in texts[0]
        plain.append(head + (texts[0] if alone else f"[{','.join(texts)}]"))
    return ",".join(plain)


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return consecutive numbers as (first, last). numbers: sorted, each once."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _expand_part(text: str) -> list[str]:
    match = re.fullmatch(r"(.*?)\[([^\]]*)\](.*)", text)
    if not match:
        return [text]
    heads: list[str] = []
    for piece in match[2].split(","):
        low, dash, high = piece.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InvalidRequest(f"{text!r} is not a list of names")
        last = min(int(high) if dash else int(low), int(low) + 65536)
        heads += [f"{match[1]}{n:0{len(low)}d}" for n in range(int(low), last + 1)]
    return [head + tail for tail in _expand_part(match[3]) for head in heads]


def pairs(line: str) -> dict[str, str]:
    """Return the `Key=Value` words of a line; a value in quotes may have blanks."""
    matches = re.findall(r'([A-Za-z_]\w*)=("[^"]*"|\S*)', line)
    return {key: value.strip('"') for key, value in matches}


def _from_text(text: str) -> SiteConf:
    conf = SiteConf()
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = re.sub(r"(?<!\\)#.*", "", line).strip()
        key, equals, value = line.partition("=")
        kind = key.strip().lower()
        if not equals:
            continue
        if kind not in (*defaults, "nodeset"):
            conf.settings[kind] = value.strip().strip('"')
            continue
        if kind == "nodeset":
            conf.sets.append(line)
            continue
        fields = pairs(line)
        names = fields.pop(next(iter(fields)))
        if names.upper() == "DEFAULT":
            defaults[kind] |= fields
            continue
        for name in expand(names):
            if kind == "nodename":
                _add_node(conf, name, defaults[kind] | fields)
            else:
                conf.partitions[name] = defaults[kind] | fields
    return conf


def _add_node(conf: SiteConf, name: str, fields: dict[str, str]) -> None:
    state = node_state(next((fields[key] for key in fields if key.lower() == "state"), ""))
    if "FUTURE" in state.words:
        return
    conf.nodes[name] = fields
    # UNKNOWN is the default in slurm.conf: slurmctld asks the node.
    if not state._replace(words=state.words - {"UNKNOWN"}).takes_jobs:
        conf.unused.append(name)


def _from_scontrol(site: SiteFiles) -> SiteConf:
    conf = SiteConf()
    for line in site.config.splitlines():
        key, equals, value = line.partition("=")
        if equals and value.strip() not in _UNSET:
            # scontrol adds units: `OverTimeLimit = 0 min`
            conf.settings[key.strip().lower()] = value.split()[0]
    defaults = conf.settings.pop("jobdefaults", "")
    for word in defaults.split(","):
        key, _, value = word.partition("=")
        if value:
            conf.settings[key.lower()] = value
    for node in read_nodes(site.nodes):
        conf.nodes[node.name] = _node_of(node)
        if not node.state.takes_jobs:
            conf.unused.append(node.name)
    for line in site.partitions.splitlines():
        fields = pairs(line)
        if fields.get("PartitionName"):
            conf.partitions[fields.pop("PartitionName")] = _partition_of(fields)
    return conf


def _node_of(node: SlurmNode) -> dict[str, str]:
    """Return a node's keys of slurm.conf. Raises FieldNotKnown where its size is not shown."""
    fields = {
        _NODE_KEYS.get(key, key): value
        for key, value in pairs(node.line).items()
        if value not in _UNSET
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


def _partition_of(printed: dict[str, str]) -> dict[str, str]:
    fields = {key: value for key, value in printed.items() if value not in _UNSET}
    # Since 25.05 scontrol shows OverSubscribe=EXCLUSIVE as a field of its own.
    exclusive = fields.pop("Exclusive", "NO")
    if exclusive not in ("NO", "USER", "TOPO"):
        fields["OverSubscribe"] = "EXCLUSIVE"
    elif exclusive == "USER":
        fields["ExclusiveUser"] = "YES"
    for word in fields.pop("JobDefaults", "").split(","):
        key, _, value = word.partition("=")
        if value:
            fields[key] = value
    return fields
