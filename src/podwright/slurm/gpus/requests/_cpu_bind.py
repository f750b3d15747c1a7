"""To what the tasks of a step are bound where task/affinity binds them: threads, cores, sockets.

An option of srun says it, else CpuBind= of the nodes, of the partition, or TaskPluginParam
(_set_def_cpu_bind of stepmgr.c). Where nobody does, each node chooses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from podwright.slurm.gpus.requests._counts import Wants
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._request_details import RequestDetails
from podwright.slurm.gpus.requests._values import NodeHardware, SlurmCluster
from podwright.slurm.site.releases import Release

_UNITS = {
    "thread": "threads",
    "threads": "threads",
    "core": "cores",
    "cores": "cores",
    "socket": "sockets",
    "sockets": "sockets",
    "no": "none",
    "none": "none",
}
#: Words that say nothing about it, those of TaskPluginParam among them
_NOTHING = {"", "(null)", "(null type)", "q", "quiet", "v", "verbose", "oomkillstep"}
_NOTHING |= {"slurmdoffspec", "slurmdspecoverride"}


@dataclass(frozen=True)
class CpuBinding:
    """What srun tells a node about the CPUs of its tasks; 0 or "" where nothing says.

    unit: threads, cores or sockets, to which an option or the site binds, or none; auto: to which
    a node does where it finds no reason for another (autobind=). sockets: block, cyclic or fcyclic,
    how --distribution goes over them; blocks: whether tasks are laid out one after the other.
    unmodelled: what is said that has no answer.
    """

    unit: str = ""
    auto: str = ""
    tasks_per_core: int = 0
    tasks_per_socket: int = 0
    threads: int = 0
    sockets: str = ""
    blocks: bool = False
    overcommit: bool = False
    unmodelled: str = ""


def binding_of(
    request: SlurmRequest,
    said: RequestDetails,
    wants: Wants,
    site: SlurmCluster,
    nodes: Iterable[NodeHardware],
    partition: str,
    release: Release,
) -> CpuBinding:
    """What srun says, which reads it from its own options or from its job's environment.

    nodes: of the job; partition: CpuBind of its partition.
    """
    alone = request.command == "srun"
    option = request.other.get("cpu-bind", "").lower() if alone else ""
    own = _read(option)
    if not own.unit and not own.strange:
        own = replace(own, unit=(_of_srun if alone else _of_job)(request, said, release))
    chosen = option in ("v", "verbose") and not release.ignores_verbose_binding
    if not own.unit and not own.strange and not chosen:
        own = _read(_default(site, nodes, partition))
    per_core = wants.tasks_per_core
    if per_core is None:
        per_core = int("CR_ONE_TASK_PER_CORE" in site.select)
    blocks = not said.second and "CR_CORE_DEFAULT_DIST_BLOCK" in site.select
    return CpuBinding(
        unit=own.unit,
        auto=own.auto,
        tasks_per_core=per_core,
        tasks_per_socket=said.tasks_per_socket or 0,
        threads=said.threads or 0,
        sockets=said.second,
        blocks=bool(said.plane) or said.second == "block" or blocks,
        overcommit=wants.overcommit,
        unmodelled=own.strange,
    )


@dataclass(frozen=True)
class _Said:
    """What a list of words says: strange is the first that has no answer."""

    unit: str = ""
    auto: str = ""
    strange: str = ""


def _read(text: str) -> _Said:
    """A --cpu-bind, CpuBind or TaskPluginParam, whose last word counts."""
    unit = auto = ""
    for word in text.lower().replace(";", ",").split(","):
        if word.startswith("autobind="):
            auto = _UNITS.get(word.removeprefix("autobind="), "")
        elif word in _UNITS:
            unit = _UNITS[word]
        elif word not in _NOTHING:
            return _Said(strange=f"tasks bound as in {text}")
    return _Said(unit, auto)


def _default(site: SlurmCluster, nodes: Iterable[NodeHardware], partition: str) -> str:
    """What the nodes of a job agree on, else its partition, else the whole site."""
    of_nodes = {node.cpu_bind for node in nodes if node.cpu_bind}
    return of_nodes.pop() if len(of_nodes) == 1 else partition or site.cpu_bind


def _of_job(request: SlurmRequest, said: RequestDetails, release: Release) -> str:
    """What an srun in a job makes of the job's options: a hint comes as --threads-per-core."""
    if said.hint or said.threads:
        return "threads"
    return _of_cores(said, release) if release.srun_reads_tasks_per_core else ""


def _of_srun(request: SlurmRequest, said: RequestDetails, release: Release) -> str:
    """What a lone srun makes of its own options."""
    if said.hint:
        return "threads" if "multithread" in said.hint else "cores"
    if request.option("threads-per-core"):
        return "threads"
    if request.option("extra-node-info"):
        counts = request.other.get("extra-node-info", "").count(":")
        return ("sockets", "cores", "threads")[min(counts, 2)]
    return _of_cores(said, release) or ("sockets" if said.tasks_per_socket else "")


def _of_cores(said: RequestDetails, release: Release) -> str:
    if not said.tasks_per_core:
        return ""
    shared = said.tasks_per_core > 1 and release.binds_shared_cores_by_thread
    return "threads" if shared else "cores"
