"""The changes that a way of scheduling needs in a site's files. They are computed, then shown, and
only then written.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest
from podwright.guests.slurm.hooks import slurm_uid, socket_of
from podwright.guests.slurm.service import Site, dump
from podwright.guests.slurm.service._pods import MARK
from podwright.slurm.site.changes import FileChanges
from podwright.slurm.site.edit import OURS, changed, joined, settings, undone, with_line
from podwright.slurm.site.files import included, lines, read

SUBMIT = "job_submit.lua"
FILTER = "cli_filter.lua"
#: Modes in which users may type --gres=vipu:... for srun as well.
_FILTERED = ("plugin", "static")
_PARTS: Final = {"host-mapping": "mapping.lua", "static": "static.lua"}
#: The SPANK plugin's options for a mode: whether it has to ask, and whether there is an --ipus.
_PLUGIN: Final = {
    "host-mapping": " ask=yes options=no prove-all=yes",
    "static": " ask=yes options=no",
    "shared": " ask=yes",
}
_NEW: Final = f"# There was no such file before.{OURS}\n"
#: How many waiting jobs Slurm looks at. With fewer, it would not see jobs that fit further back.
DEPTH = 10000


@dataclass(frozen=True)
class NativePlaces:
    """Where files are. native: the folder of the compiled hook and plugin. folder: our own
    files.
    """

    slurm_conf: Path
    folder: Path
    native: Path

    @property
    def etc(self) -> Path:
        """Slurm's own folder."""
        return self.slurm_conf.parent


def native(places: NativePlaces, site: Site, *, trusted: Sequence[int] = (0,)) -> FileChanges:
    """Return the changes for a site's mode. Raises InvalidRequest for a site that they cannot be
    made to.
    """
    conf = read(places.slurm_conf)
    base = undone(conf, source=str(places.slurm_conf))
    now = settings(base)
    plan = FileChanges()
    wanted = _wanted(places, site, now)
    _check_includes(places, base, wanted)
    if not site.listen:
        plan.folders[Path(site.socket).parent] = slurm_uid(site)
    if site.key:
        plan.secrets[Path(site.key)] = slurm_uid(site)
    plan.texts[places.folder / "native.toml"] = dump(site)
    plan.texts[places.folder / "hook.conf"] = _hook_conf(places, site, now, trusted)
    for name in ("prolog-slurmctld", "epilog-slurmctld"):
        plan.links[places.folder / name] = places.native / "podwright-hook"
    # slurmctld turns the name into lower case.
    cluster = _everywhere(places.slurm_conf).get("clustername", "").lower()
    _script(plan, places.etc / SUBMIT, job_submit(site, places.etc, trusted, cluster=cluster))
    _script(plan, places.etc / FILTER, cli_filter(places.etc) if site.mode in _FILTERED else None)
    stack = Path(now.get("plugstackconfig", "") or places.etc / "plugstack.conf")
    plugin = places.native / "spank_podwright.so"
    words = f"host={site.host} port={site.port}"
    if socket := socket_of(site.server):
        words += f" socket={socket}"
    words += "".join(f" prove={door}" for door in _doors(site))
    words += f" munge={site.munge_socket}" if site.munge_socket else ""
    words += f" key={site.key}" if site.key else ""
    words += "".join(f" trust={uid}" for uid in _signers(site, trusted))
    words += _PLUGIN.get(site.mode, "")
    before = read(stack) if stack.exists() else _NEW
    new = _NEW if _NEW in before else ""
    plan.texts[stack] = new + with_line(before, f"optional {plugin} {words}", str(stack))
    plan.texts[places.slurm_conf] = changed(conf, wanted, str(places.slurm_conf))
    return plan


def undo(places: NativePlaces) -> FileChanges:
    """Return the changes that undo the set-up. Raises InvalidRequest where Slurm would not start
    after them.
    """
    plan = FileChanges()
    conf = read(places.slurm_conf)
    _check_weights(places, conf)
    plan.texts[places.slurm_conf] = undone(conf, source=str(places.slurm_conf))
    stack = Path(settings(conf).get("plugstackconfig", "") or places.etc / "plugstack.conf")
    if stack.exists():
        text = read(stack)
        left = undone(text, source=str(stack))
        plan.texts[stack] = None if _NEW in text and not left else left
    _script(plan, places.etc / SUBMIT, None)
    _script(plan, places.etc / FILTER, None)
    for name in ("native.toml", "hook.conf", "prolog-slurmctld", "epilog-slurmctld"):
        if (places.folder / name).is_symlink() or (places.folder / name).exists():
            plan.texts[places.folder / name] = None
    return plan


def window(slurm_conf: Path) -> float:
    """Return the seconds that heterogeneous jobs have to start in. Raises InvalidRequest.

    They are two backfill intervals (bf_interval, 30 s by default), at least 10 and at most 60.
    """
    return backfill_window(_everywhere(slurm_conf).get("schedulerparameters", ""))


def backfill_window(parameters: str) -> float:
    """Return the same, computed from the value of SchedulerParameters."""
    words = parameters.lower().split(",")
    intervals = [word.partition("=")[2] for word in words if word.startswith("bf_interval=")]
    interval = int(intervals[-1]) if intervals and intervals[-1].isdecimal() else 30
    return float(min(60, max(10, 2 * interval)))


def _everywhere(slurm_conf: Path) -> dict[str, str]:
    """Return the settings of slurm.conf and of the files that it includes."""
    read(slurm_conf)  # raises the error if it cannot be read
    return settings("\n".join(lines(slurm_conf)))


def slurm_user(slurm_conf: Path) -> str:
    """Return SlurmUser, the user that slurmctld and its hooks run as. Raises InvalidRequest."""
    return _everywhere(slurm_conf).get("slurmuser", "") or "root"


def is_ours(script: Path) -> bool:
    """Return whether a script is one that we wrote."""
    return read(script).startswith("-- Podwright's part of ")


def _script(plan: FileChanges, path: Path, text: str | None) -> None:
    """Plan a script of ours in place of the site's own, which is moved aside. text: None restores
    the site's.
    """
    site = path.with_suffix(".site.lua")
    ours = path.exists() and is_ours(path)
    if text is not None:
        if path.exists() and not ours:
            plan.moves.append((path, site))
        plan.texts[path] = text
    elif ours and site.exists():
        plan.moves.append((site, path))
    elif ours:
        plan.texts[path] = None


def job_submit(site: Site, folder: Path, trusted: Sequence[int], *, cluster: str) -> str:
    """Return our job_submit.lua: all modes share its head and its end, and each has its own part
    between.

    cluster: the name of the Slurm cluster; no job with devices may leave it.
    """
    text = _lua(SUBMIT)
    if part := _PARTS.get(site.mode):
        head, _, rest = text.partition("-- @WAY@\n")
        text = head + _lua(part) + rest.partition("-- @END@\n")[2]
    sizes = {host.cluster: (host.sizes, host.size_multiple) for host in site.hosts}
    stock = Counter(fixed.size for fixed in site.partitions)
    for word, value in {
        "WAY": "",
        "END": "",
        "PODS": _rows(
            f'   ["{pod.type}"] = {{ licence = "{pod.licence}", devices = {pod.devices}, '
            f"sizes = {{ {', '.join(str(1 << order) for order in pod.orders)} }}, "
            f"domain = {pod.domain}, "
            f'feature = "{pod.feature}" }},'
            for pod in site.pods
        ),
        "DEFAULT": site.pods[0].type if site.pods else "",
        "SHARED": "true" if site.mode == "shared" else "false",
        "DEFAULT_IPUS": "nil" if site.default_ipus < 0 else str(site.default_ipus),
        "HOSTS": _rows(
            f'   ["{host.name}"] = {{ cluster = "{host.cluster}", devices = {host.devices} }},'
            for host in site.hosts
        ),
        "SIZES": _rows(
            f'   ["{name}"] = {{ {", ".join(map(str, legal))}, whole = {multiple} }},'
            for name, (legal, multiple) in sorted(sizes.items())
        ),
        "STOCK": _rows(f"   [{size}] = {count}," for size, count in sorted(stock.items())),
        "UIDS": ", ".join(map(str, trusted)),
        "FOLDER": str(folder),
        "CLUSTER": cluster,
    }.items():
        text = text.replace(f"-- @{word}@\n", "").replace(f"@{word}@", value)
    return text


def cli_filter(folder: Path) -> str:
    """Return our cli_filter.lua."""
    return _lua(FILTER).replace("@FOLDER@", str(folder))


def _lua(name: str) -> str:
    return files("podwright.guests.slurm.setup").joinpath(name).read_text()


def _rows(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _wanted(places: NativePlaces, site: Site, now: Mapping[str, str]) -> dict[str, str]:
    licences = [f"{name}:{count}" for name, count in site.totals().items()]
    out = {
        "Licenses": joined(now.get("licenses", ""), *licences),
        "PrologSlurmctld": str(places.folder / "prolog-slurmctld"),
        "EpilogSlurmctld": str(places.folder / "epilog-slurmctld"),
        "JobSubmitPlugins": joined(now.get("jobsubmitplugins", ""), "lua"),
        "SchedulerParameters": joined(
            now.get("schedulerparameters", ""),
            f"default_queue_depth={DEPTH}",
            f"bf_max_job_test={DEPTH}",
        ),
    }
    if site.mode != "host-mapping":
        # Only the name is needed, so that sbatch accepts --gres=vipu:TYPE. No node has any.
        out["GresTypes"] = joined(now.get("grestypes", ""), "vipu")
    if site.mode in _FILTERED:
        out["CliFilterPlugins"] = joined(now.get("clifilterplugins", ""), "lua")
    limits = now.get("propagateresourcelimitsexcept", "")
    # Slurm takes one of the two settings only, so one that the site has itself is kept.
    if "propagateresourcelimits" not in now and "MEMLOCK" not in limits.upper():
        out["PropagateResourceLimitsExcept"] = joined(limits, "MEMLOCK")
    if "slurmdbd" in now.get("accountingstoragetype", ""):
        counted = [pod.licence for pod in site.pods] + [fixed.licence for fixed in site.partitions]
        tres = [f"license/{name}" for name in dict.fromkeys(counted)]
        out["AccountingStorageTRES"] = joined(now.get("accountingstoragetres", ""), *tres)
    for name in (word.partition(":")[0] for word in licences):
        if any(name == licence.partition(":")[0] for licence in now.get("licenses", "").split(",")):
            raise InvalidRequest(
                f"{places.slurm_conf}: there is a licence {name} already",
                operation="add Podwright's",
                would_work=f"give the site's own {name} another name, because Podwright counts "
                "its devices by this one",
            )
    return out


def _doors(site: Site) -> list[str]:
    """Return where hooks and steps reach the service: on its own host by its Unix socket, elsewhere
    by TCP.
    """
    return [f"unix:{site.socket}", *(f"tcp:{door}" for door in site.doors)]


def _signers(site: Site, trusted: Sequence[int]) -> list[int]:
    """Return the uids, beside root, that may sign the service's replies over TCP."""
    return [uid for uid in trusted if uid] if site.listen else []


def _hook_conf(
    places: NativePlaces, site: Site, now: Mapping[str, str], trusted: Sequence[int]
) -> str:
    lines = [
        "# Written by podwright slurm configure.",
        *(f"server {door}" for door in _doors(site)),
        *([f"munge-socket {site.munge_socket}"] if site.munge_socket else []),
        *([f"key {site.key}"] if site.key else []),
        *(f"trust {uid}" for uid in _signers(site, trusted)),
        f"licence {MARK}",
        "prolog-seconds 60",
        "epilog-seconds 600",
    ]
    if log := now.get("slurmctldlogfile", ""):
        lines.append(f"log {log}")
    scontrol = shutil.which("scontrol") or "/usr/bin/scontrol"
    lines += [f"scontrol {scontrol}", f"slurm-conf {places.slurm_conf}"]
    if site.mode == "host-mapping":
        lines.append(f"drain {scontrol}")
    for key in ("prolog", "epilog"):
        if before := now.get(f"{key}slurmctld", ""):
            lines.append(f"before-{key}-slurmctld {before}")
    return "\n".join(lines) + "\n"


def _check_weights(places: NativePlaces, conf: str) -> None:
    """Raise InvalidRequest where the site's own lines weigh a TRES that only our settings define.

    Without our settings slurmctld does not know that TRES, and does not start.
    """
    base = undone(conf, source=str(places.slurm_conf))
    tres = [settings(text).get("accountingstoragetres", "").lower() for text in (conf, base)]
    ours = set(tres[0].split(",")) - set(tres[1].split(","))
    for line in base.splitlines():
        words = line.partition("#")[0].lower()
        unweighted = [name for name in sorted(ours) if name and f"{name}=" in words]
        if unweighted:
            raise InvalidRequest(
                f"{places.slurm_conf} weighs {unweighted[0]}, which goes: {line.strip()[:200]}",
                operation="take Podwright's settings back",
                would_work="take that out first, else slurmctld does not start",
            )


def _check_includes(places: NativePlaces, text: str, wanted: Mapping[str, str]) -> None:
    """Raise InvalidRequest where an included file sets what we would have to change."""
    wanted_keys = {key.lower() for key in wanted}
    for path in included(places.slurm_conf):
        overridden = [key for key in settings(read(path)) if key in wanted_keys]
        if overridden:
            raise InvalidRequest(
                f"{path}, included by {places.slurm_conf}, sets {', '.join(overridden)}",
                operation="configure Slurm",
                would_work=f"move those lines into {places.slurm_conf}",
            )
