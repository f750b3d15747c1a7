"""Which changes between two sides' files a twin takes over, which it does not, and which lines no
Slurm understands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podwright.gpu.rehearse._rehearse import Side
from podwright.slurm.site.conf_lines import read_row, settings
from podwright.slurm.twin import TWIN_SETTINGS, SiteFiles, same_files, site_rows

_OTHER_FILES = ("gres_conf", "topology_conf", "topology_yaml")
#: The keys of gres.conf, and of lines about nodes and partitions, of all releases.
_GRES_KEYS = frozenset(
    (
        *("nodename", "name", "type", "file", "multiplefiles", "count", "cores", "cpus", "links"),
        *("flags", "autodetect"),
    )
)
_NODE_KEYS = frozenset(
    (
        *("nodename", "nodehostname", "nodeaddr", "bcastaddr", "boards", "corespeccount"),
        *("corespersocket", "cpubind", "cpus", "cpuspeclist", "feature", "features", "gres"),
        *("memspeclimit", "parameters", "port", "procs", "realmemory", "reason"),
        *("restrictedcorespergpu", "sockets", "socketsperboard", "state", "threadspercore"),
        *("tmpdisk", "topology", "weight"),
    )
)
_PARTITION_KEYS = frozenset(
    (
        *("partitionname", "allocnodes", "allowaccounts", "allowgroups", "allowqos", "alternate"),
        *("cpubind", "default", "defaulttime", "defcpupergpu", "defmempercpu", "defmempergpu"),
        *("defmempernode", "denyaccounts", "denyqos", "disablerootjobs", "exclusivetopo"),
        *("exclusiveuser", "gracetime", "hidden", "lln", "maxcpuspernode", "maxcpuspersocket"),
        *("maxmempercpu", "maxmempernode", "maxnodes", "maxtime", "minnodes", "nodes"),
        *("oversubscribe", "overtimelimit", "powerdownonidle", "preemptmode", "priority"),
        *("priorityjobfactor", "prioritytier", "qos", "reqresv", "resumetimeout", "rootonly"),
        *("selecttypeparameters", "shared", "state", "suspendtime", "suspendtimeout", "topology"),
        *("tresbillingweights", "jobdefaults"),
    )
)
_KNOWN_KEYS = {"nodename": _NODE_KEYS, "partitionname": _PARTITION_KEYS}


def twins_are_equal(before: Side, after: Side) -> bool:
    """Whether both sides start the same slurmctld with the same files and state."""
    return (
        before.slurm == after.slurm
        and before.present == after.present
        and same_files(before.files, after.files, before.slurm.version)
    )


def changed_files(before: SiteFiles, after: SiteFiles) -> list[str]:
    """The names of the files whose content differs."""
    names = ("slurm_conf", *_OTHER_FILES)
    return [
        name.replace("_yaml", ".yaml").replace("_conf", ".conf")
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]


def unseen_changes(before: SiteFiles, after: SiteFiles) -> list[str]:
    """The settings and keys that differ and that no twin takes over, so that nothing is known of
    their effect."""
    seen_settings = {name.lower() for name in TWIN_SETTINGS["slurm.conf"]}
    old, new = settings(before.slurm_conf), settings(after.slurm_conf)
    changes = [
        key
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key) and key not in seen_settings and key not in _KNOWN_KEYS
    ]
    for kind, known in TWIN_SETTINGS.items():
        if kind == "slurm.conf":
            continue
        seen_keys = {name.lower() for name in known}
        old_rows, new_rows = site_rows(before, kind), site_rows(after, kind)
        for name in old_rows.keys() & new_rows.keys():
            changes += [
                f"{key} of {name}"
                for key in _different_keys(old_rows[name], new_rows[name])
                if key not in seen_keys
            ]
    return list(dict.fromkeys(changes))


def _different_keys(old_row: Mapping[str, str], new_row: Mapping[str, str]) -> Iterator[str]:
    old = {key.lower(): value for key, value in old_row.items()}
    new = {key.lower(): value for key, value in new_row.items()}
    return (key for key in sorted({*old, *new}) if old.get(key) != new.get(key))


def broken_lines(side: Side) -> list[str]:
    """The lines of a side's files that have a key which no Slurm has, with that key."""
    broken = []
    for line in side.files.slurm_conf.splitlines():
        keys = _keys(line)
        known = _KNOWN_KEYS.get(keys[0]) if keys else None
        broken += [f"{key} in {line.strip()[:60]!r}" for key in keys if known and key not in known]
    for line in side.files.gres_conf.splitlines():
        broken += [
            f"{key} in {line.strip()[:60]!r} (gres.conf)"
            for key in _keys(line)
            if key not in _GRES_KEYS
        ]
    return list(dict.fromkeys(broken))


def _keys(line: str) -> list[str]:
    return [key.lower() for key in read_row(line.partition("#")[0])]
