"""What is checked before any node is looked at: options, names, partitions, times."""

from __future__ import annotations

import re

from podwright.slurm.gpus.requests._consistent_counts import forgets_shares
from podwright.slurm.gpus.requests._counts import Wants
from podwright.slurm.gpus.requests._eligible import named_features
from podwright.slurm.gpus.requests._request import SHARED, SlurmRequest, gres_names
from podwright.slurm.gpus.requests._request_details import RequestDetails, overrides_hint
from podwright.slurm.gpus.requests._slurm_options import known
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition, SlurmRefusal
from podwright.slurm.site.releases import Release

_BIND = re.compile(
    r"(verbose,)?(none|closest|single:\d+|per_task:\d+"
    r"|map(_gpu)?:[\dx*,a-f]+|mask(_gpu)?:[\dxa-f*,]+)$"
)


def check_options(
    request: SlurmRequest, said: RequestDetails, release: Release
) -> SlurmRefusal | None:
    """Options that this release does not know, or that exclude each other."""
    table = known(request.command)
    for given in request.given:
        option = table.get(given.name)
        if option and not option.since <= release.version < option.until:
            return SlurmRefusal(
                "submit",
                f"{request.command} of Slurm {release} has no --{given.name}",
            )
    memory = [n for n in ("mem", "mem-per-cpu", "mem-per-gpu") if request.option(n)]
    if len(memory) > 1:
        return SlurmRefusal("submit", f"--{memory[0]} and --{memory[1]} exclude each other")
    misspelt = request.bind[:1].lower() == "c" and not _BIND.match(request.bind)
    if misspelt and not release.binds_by_short_names:  # sbatch looked at the first letter alone
        return SlurmRefusal("unknown", f"not modelled: --gpu-bind={request.bind}")
    if request.min_nodes == 0:
        late = release.counts_tasks_at_server and (request.tasks or request.max_nodes)
        return SlurmRefusal("unknown" if late else "submit", "--nodes=0 is no count of nodes")
    way, _, count = request.bind.removeprefix("verbose,").partition(":")
    if way in ("single", "per_task") and count and not count.strip("0"):
        return SlurmRefusal("unknown", f"not modelled: --gpu-bind={request.bind}")
    if way in ("map", "mask") and not release.binds_by_short_names:
        return SlurmRefusal("submit", f"this release has no --gpu-bind={way}", f"{way}_gpu:…")
    if said.core_spec is not None and said.thread_spec is not None:
        return SlurmRefusal("submit", "--core-spec and --thread-spec exclude each other")
    hint = request.other.get("hint", "")
    alone = hint and not overrides_hint(request.given, release)
    if request.per_socket and alone and not release.sockets_override_hint:
        return SlurmRefusal("submit", f"--hint={hint} takes back --sockets-per-node here")
    refused = (
        _flags(request, said, release)
        or _plane(request, said, release)
        or _arbitrary(said)
        or _segments(request, said)
    )
    if refused is None and release.checks_option_conflicts:
        return _option_conflicts(request, said)
    return refused


def _flags(request: SlurmRequest, said: RequestDetails, release: Release) -> SlurmRefusal | None:
    """--gres-flags that exclude each other, or that are for srun alone."""
    both = {"disable-binding", "enforce-binding"} <= said.flags
    if both and release.checks_option_conflicts:
        return SlurmRefusal("submit", "disable-binding and enforce-binding exclude each other")
    if {"one-task-per-sharing", "multiple-tasks-per-sharing"} <= said.flags:
        return SlurmRefusal("submit", "one and multiple tasks per sharing exclude each other")
    if request.shares and request.option("gpu-freq") and not forgets_shares(request):
        return SlurmRefusal(
            "submit", "--gpu-freq is for whole GPUs, and shares of them are asked for"
        )
    if "allow-task-sharing" in said.flags and request.command != "srun":
        return SlurmRefusal("submit", "--gres-flags=allow-task-sharing is for srun alone")
    return None


def _segments(request: SlurmRequest, said: RequestDetails) -> SlurmRefusal | None:
    """--segment that does not divide the nodes."""
    nodes = request.min_nodes or 0
    if said.segment and nodes > said.segment and nodes % said.segment:
        return SlurmRefusal("submit", f"{nodes} nodes are no multiple of --segment={said.segment}")
    return None


def check_times(said: RequestDetails, partitions: list[SlurmPartition]) -> SlurmRefusal | None:
    """--time-min beyond the time of the job."""
    if said.time_min is None or not partitions:
        return None
    time = said.time if said.time is not None else partitions[0].default_time
    most = max(partition.max_time for partition in partitions)
    time = most if time is None else min(time, most)
    if said.time_min > time:
        return SlurmRefusal("submit", f"--time-min is {said.time_min} minutes, the job has {time}")
    return None


def _arbitrary(said: RequestDetails) -> SlurmRefusal | None:
    """Tasks in the order of a list of nodes, which must be there."""
    if said.first != "arbitrary":
        return None
    if said.named:
        return SlurmRefusal("unknown", "this is not modelled: --distribution=arbitrary")
    return SlurmRefusal(
        "submit",
        "--distribution=arbitrary goes by a list of nodes, and there is none",
        "--nodelist=..., or SLURM_HOSTFILE in the environment",
    )


def _plane(request: SlurmRequest, said: RequestDetails, release: Release) -> SlurmRefusal | None:
    """A plane that leaves nodes without a task, as the commands check it.

    Those that count tasks themselves know of --ntasks-per-node by then, sbatch of a fixed count of
    nodes only.
    """
    if not said.plane or request.command == "srun":
        return None
    nodes, tasks = request.min_nodes or (len(said.named) or 1), request.tasks or 1
    fixed = request.command == "salloc" or (request.max_nodes or nodes) == nodes
    if request.tasks is None and fixed and not release.counts_tasks_at_server:
        tasks = nodes * request.tasks_per_node if request.tasks_per_node else 1
    if tasks // said.plane < nodes and (nodes - 1) * said.plane >= tasks:
        return SlurmRefusal(
            "submit",
            f"{tasks} tasks in planes of {said.plane} do not reach {nodes} nodes",
            f"--ntasks={(nodes - 1) * said.plane + 1} or more",
        )
    return None


def _option_conflicts(request: SlurmRequest, said: RequestDetails) -> SlurmRefusal | None:
    if request.option("exclusive") and request.option("oversubscribe"):
        return SlurmRefusal("submit", "--exclusive and --oversubscribe exclude each other")
    if request.option("tres-per-task") and request.tasks_per_gpu:
        return SlurmRefusal("submit", "--tres-per-task and --ntasks-per-gpu exclude each other")
    sized = "cpu=" in request.other.get("tres-per-task", "").replace("cpu:", "cpu=")
    if sized and request.option("cpus-per-task"):
        return SlurmRefusal(
            "submit", "--tres-per-task=cpu=… and --cpus-per-task exclude each other"
        )
    if request.cpus_per_task and request.cpus_per_gpu:
        return SlurmRefusal("submit", "--cpus-per-task and --cpus-per-gpu exclude each other")
    shared = any(way == "task" for way, _, _ in request.shares)
    if "one-task-per-sharing" in said.flags and not shared:
        return SlurmRefusal(
            "submit", "--gres-flags=one-task-per-sharing needs shards in --tres-per-task"
        )
    if said.tasks_per_core and said.threads and said.threads < said.tasks_per_core:
        return SlurmRefusal("submit", "--ntasks-per-core is more than --threads-per-core")
    return None


def check_names(
    w: Wants, said: RequestDetails, site: SlurmCluster, release: Release, most: int | None
) -> SlurmRefusal | None:
    """Nodes and GRES that there are not. most: nodes by --nodes, where names are not cut to it."""
    there = {name for name, _ in site.nodes}
    for name in (*w.options.named, *said.excluded):
        if name not in there:
            return SlurmRefusal("submit", f"there is no node {name}")
    if set(w.named) & set(said.excluded):
        return SlurmRefusal("submit", "nodes are both asked for and excluded")
    features = {feature for shape in site.shapes for feature in shape.features}
    asked = named_features(said.constraint)
    for name in sorted(asked | (named_features(said.prefer) if site.prefers else set())):
        if features and name not in features:  # _valid_feature_list, of both lists
            return SlurmRefusal("submit", f"no node has the feature {name}")
    wide = w.max_nodes and len(w.named) > w.max_nodes
    wide = wide or (most and len(said.named) > most)
    if wide and not release.nodelist_is_pool:
        return SlurmRefusal("submit", f"{len(w.named)} nodes are named, --nodes allows fewer")
    for ask in w.asks:
        kinds = {kind for shape in site.shapes for kind in (*shape.kinds, *shape.types) if kind}
        if ask.kind and kinds and ask.kind not in kinds:
            return SlurmRefusal(
                "submit",
                f"no node has GPUs of type {ask.kind}",
                "Types here: " + ", ".join(sorted(kinds)),
            )
    return None


def check_named_partition(
    w: Wants, site: SlurmCluster, partitions: list[SlurmPartition]
) -> SlurmRefusal | None:
    """Named nodes of another partition, with EnforcePartLimits: even where it is down."""
    away = [one for one in partitions if one.nodes and not set(w.named) <= one.nodes]
    if away and (site.enforce == "ALL" or (site.enforce == "ANY" and len(away) == len(partitions))):
        return SlurmRefusal("submit", f"partition {away[0].name} lacks nodes that are named")
    return None


def check_gres(
    request: SlurmRequest, said: RequestDetails, site: SlurmCluster
) -> SlurmRefusal | None:
    """Generic resources that the site has not, or that are not modelled."""
    words = [request.other.get("gres", ""), *request.other.get("tres-per-task", "").split(",")]
    names = {
        name for word in words if not word.startswith(("cpu", "lic")) for name in gres_names(word)
    }
    for name in sorted(names - {"none"}):
        if site.gres_types and name not in site.gres_types:
            return SlurmRefusal("submit", f"the site has no GRES {name} (GresTypes)")
        if name not in ("gpu", *SHARED):
            return SlurmRefusal("unknown", f"this is not modelled: --gres={name}")
    one = "one-task-per-sharing" in said.flags
    if one and "MULTIPLE_SHARING_GRES_PJ" not in site.select:
        return SlurmRefusal(
            "submit",
            "--gres-flags=one-task-per-sharing needs SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ",
        )
    return None


def check_modelled(
    said: RequestDetails, site: SlurmCluster, partitions: list[SlurmPartition]
) -> SlurmRefusal | None:
    """What decides here and is not modelled."""
    names = [*said.unmodelled, *site.unmodelled]
    names += [p.unmodelled for p in partitions if p.unmodelled]
    if site.core_spec_allowed and (said.core_spec is not None or said.thread_spec is not None):
        names.append("--core-spec where the site allows it")
    if said.segment and site.topology not in ("flat", "tree"):
        names.append("--segment")
    if not names:
        return None
    return SlurmRefusal("unknown", f"this is not modelled: {', '.join(dict.fromkeys(names))}")


def open_partitions(
    said: RequestDetails, site: SlurmCluster
) -> list[SlurmPartition] | SlurmRefusal:
    """The partitions of a job, the first to be tried first."""
    by_name = {p.name: p for p in site.partitions}
    if not said.partitions:
        one = by_name.get(site.default) or (site.partitions[0] if site.partitions else None)
        return _open([one]) if one else SlurmRefusal("submit", "there is no default partition")
    found = []
    for name in dict.fromkeys(said.partitions):
        if name not in by_name:
            if not site.default and by_name.keys() == {""}:
                return [by_name[""]]
            return SlurmRefusal(
                "submit", f"there is no partition {name}", "There are: " + ", ".join(by_name)
            )
        found.append(by_name[name])
    return _open(sorted(found, key=lambda p: -p.priority))


def _open(partitions: list[SlurmPartition]) -> list[SlurmPartition] | SlurmRefusal:
    """Those of them that jobs may be submitted to."""
    some = [one for one in partitions if one.accepts or one.unmodelled]
    if some:
        return some
    names = ", ".join(one.name for one in partitions)
    return SlurmRefusal("submit", f"{names} takes no jobs: it is drained or inactive")


def check_conflicts(request: SlurmRequest) -> SlurmRefusal | None:
    """What no release takes: a misspelt --gpu-bind, counts beside --ntasks-per-gpu."""
    if request.bind and not _BIND.match(request.bind):
        return SlurmRefusal(
            "submit",
            f"--gpu-bind={request.bind} is none of the ways to bind",
            "Write closest, single:N, per_task:N, map_gpu:… , mask_gpu:… or none",
        )
    if request.tasks_per_gpu:
        for name, given in (
            ("gpus-per-task", request.per_task),
            ("gpus-per-socket", request.per_socket),
            ("ntasks-per-node", request.tasks_per_node),
        ):
            if given:
                return SlurmRefusal(
                    "submit",
                    f"--ntasks-per-gpu and --{name} exclude each other",
                    f"Keep one of them; --ntasks-per-gpu with --gpus, or --{name} alone",
                )
    return None
