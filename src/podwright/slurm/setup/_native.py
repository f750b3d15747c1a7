"""What native mode needs of a site's files: computed first, shown, and only then written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from podwright.slurm.service import Site, dump
from podwright.slurm.service._pods import MARK
from podwright.slurm.setup._edit import changed, joined, settings, undone, with_line
from podwright.wire import SYSTEM_SOCKET, InvalidRequest

SITE_SCRIPT = "job_submit.site.lua"
SUBMIT = "job_submit.lua"
#: How many waiting jobs Slurm looks at: behind fewer, those that fit would not be seen.
DEPTH = 10000


@dataclass(frozen=True)
class Places:
    """Where things lie. native: the compiled hook and plugin. folder: ours."""

    slurm_conf: Path
    folder: Path
    native: Path

    @property
    def etc(self) -> Path:
        """Slurm's own folder."""
        return self.slurm_conf.parent


@dataclass
class Plan:
    """Files with what they should hold (None: they go), links, and moves (from, to)."""

    texts: dict[Path, str | None] = field(default_factory=dict)
    links: dict[Path, Path] = field(default_factory=dict)
    moves: list[tuple[Path, Path]] = field(default_factory=list)


def native(places: Places, site: Site, *, trusted: Sequence[int] = (0,)) -> Plan:
    """The plan of native mode. Raises InvalidRequest for a site that it cannot be added to."""
    conf = read(places.slurm_conf)
    base = undone(conf)
    now = settings(base)
    _check_includes(places, base)
    plan = Plan()
    wanted = _wanted(places, site, now)
    plan.texts[places.folder / "native.toml"] = dump(site)
    plan.texts[places.folder / "hook.conf"] = _hook_conf(site, now)
    for name in ("prolog-slurmctld", "epilog-slurmctld"):
        plan.links[places.folder / name] = places.native / "podwright-hook"
    submit = places.etc / SUBMIT
    if submit.exists() and not is_ours(submit):
        plan.moves.append((submit, places.etc / SITE_SCRIPT))
    plan.texts[submit] = job_submit(site, places.etc, trusted)
    stack = Path(now.get("plugstackconfig", "") or places.etc / "plugstack.conf")
    plugin = places.native / "spank_podwright.so"
    words = f"host={site.host} port={site.port} socket={site.server or SYSTEM_SOCKET}"
    before = read(stack) if stack.exists() else ""
    plan.texts[stack] = with_line(before, f"optional {plugin} {words}")
    plan.texts[places.slurm_conf] = changed(conf, wanted, str(places.slurm_conf))
    return plan


def undo(places: Places) -> Plan:
    """The plan that takes it back."""
    plan = Plan()
    conf = read(places.slurm_conf)
    plan.texts[places.slurm_conf] = undone(conf)
    stack = Path(settings(conf).get("plugstackconfig", "") or places.etc / "plugstack.conf")
    if stack.exists():
        left = undone(read(stack))
        plan.texts[stack] = left or None
    submit, site = places.etc / SUBMIT, places.etc / SITE_SCRIPT
    if submit.exists() and is_ours(submit):
        if site.exists():
            plan.moves.append((site, submit))
        else:
            plan.texts[submit] = None
    for name in ("native.toml", "hook.conf", "prolog-slurmctld", "epilog-slurmctld"):
        if (places.folder / name).is_symlink() or (places.folder / name).exists():
            plan.texts[places.folder / name] = None
    return plan


def is_ours(script: Path) -> bool:
    """Is a job_submit.lua the one that we wrote?"""
    return read(script).startswith("-- Podwright's part of job_submit")


def job_submit(site: Site, folder: Path, trusted: Sequence[int]) -> str:
    """Our job_submit.lua."""
    rows = [
        f'   ["{pod.type}"] = {{ licence = "{pod.licence}", devices = {pod.devices}, '
        f"largest = {pod.largest}, domain = {pod.domain} }},"
        for pod in site.pods
    ]
    text = files("podwright.slurm.setup").joinpath(SUBMIT).read_text()
    for word, value in {
        "PODS": "\n".join(rows),
        "DEFAULT": site.pods[0].type,
        "UIDS": ", ".join(map(str, trusted)),
        "FOLDER": str(folder),
    }.items():
        text = text.replace(f"@{word}@", value)
    return text


def read(path: Path) -> str:
    """A file's text, every byte kept. Raises InvalidRequest where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}", asked="read it") from None


def _wanted(places: Places, site: Site, now: Mapping[str, str]) -> dict[str, str]:
    licences = [f"{name}:{count}" for name, count in site.totals().items()]
    out = {
        "Licenses": joined(now.get("licenses", ""), *licences),
        "PrologSlurmctld": str(places.folder / "prolog-slurmctld"),
        "EpilogSlurmctld": str(places.folder / "epilog-slurmctld"),
        "JobSubmitPlugins": joined(now.get("jobsubmitplugins", ""), "lua"),
        # The name alone: sbatch itself refuses --gres=vipu:TYPE otherwise. No node has any.
        "GresTypes": joined(now.get("grestypes", ""), "vipu"),
        "SchedulerParameters": joined(
            now.get("schedulerparameters", ""),
            f"default_queue_depth={DEPTH}",
            f"bf_max_job_test={DEPTH}",
        ),
    }
    limits = now.get("propagateresourcelimitsexcept", "")
    # Slurm takes one of the two settings; ALL and NONE of the other say enough.
    if "propagateresourcelimits" not in now and "MEMLOCK" not in limits.upper():
        out["PropagateResourceLimitsExcept"] = joined(limits, "MEMLOCK")
    if "slurmdbd" in now.get("accountingstoragetype", ""):
        tres = [f"license/{pod.licence}" for pod in site.pods]
        out["AccountingStorageTRES"] = joined(now.get("accountingstoragetres", ""), *tres)
    for name in (word.partition(":")[0] for word in licences):
        if any(name == w.partition(":")[0] for w in now.get("licenses", "").split(",")):
            raise InvalidRequest(
                f"{places.slurm_conf}: there is a licence {name} already",
                asked="add Podwright's",
                would_work="another name with --licence",
            )
    return out


def _hook_conf(site: Site, now: Mapping[str, str]) -> str:
    lines = [
        "# Written by podwright slurm configure.",
        f"server unix:{site.socket}",
        f"licence {MARK}",
        "prolog-seconds 60",
        "epilog-seconds 600",
    ]
    for key in ("prolog", "epilog"):
        if before := now.get(f"{key}slurmctld", ""):
            lines.append(f"before-{key}-slurmctld {before}")
    return "\n".join(lines) + "\n"


def _check_includes(places: Places, text: str) -> None:
    """Raises InvalidRequest where an included file holds what we would have to change."""
    mine = ("licenses", "prologslurmctld", "epilogslurmctld", "jobsubmitplugins")
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0].lower() != "include":
            continue
        path = places.etc / words[1]
        if not path.exists():
            continue
        found = [key for key in settings(read(path)) if key in mine]
        if found:
            raise InvalidRequest(
                f"{path}, included by {places.slurm_conf}, sets {', '.join(found)}",
                asked="configure Slurm",
                would_work=f"move those lines into {places.slurm_conf}",
            )
