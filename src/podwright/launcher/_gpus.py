"""Which GPUs each instance drives, where Slurm has granted them: the launcher owns the binding.

Slurm is the only allocator there, and no server is asked. It is asked for GPUs per node, and each
host divides what it was granted among its own instances, nearest cores and GPUs together: what
Slurm's own ways of binding do differs by release, and hides peers from each other.

With visibility `task` an instance sees its own GPUs alone. With `node` it sees all that its host
was granted, in the order of the instances, so that its own are those from LOCAL_RANK on: programs
that open their peers' memory need that. Which GPU is whose in words is our choice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest, PodwrightError
from podwright.hosts import Cores, CpuCore, find_program, scattered, write_list
from podwright.launcher._environment import SIMULATED_VARIABLE
from podwright.launcher._options import Options
from podwright.launcher._placement import InstancePlace, places

if TYPE_CHECKING:
    from podwright.hosts.gpus import Gpu

#: In an instance's environment: its own GPUs, as the variable of its vendor names them.
OWN_GPUS = "PODWRIGHT_OWN_GPUS"
_CUDA, _ROCR = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
#: As `podwright.hosts.gpus` has it, which is imported only where there are GPUs to look at.
STANDINS = ("PODWRIGHT_STANDIN_NVML", "PODWRIGHT_STANDIN_AMDSMI")
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
#: What says in a job that it has GPUs, and what srun would take for a request of its own.
_GRANTED = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
_ASKED = frozenset(
    [
        *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET"),
        *("SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_CPUS_PER_GPU"),
        *("SLURM_TRES_PER_TASK", "SLURM_TRES_BIND"),
    ]
)
#: What Slurm tells each host of its own GPUs, and a relay keeps.
OF_HOST = frozenset([*_GRANTED, _CUDA, _ROCR, "GPU_DEVICE_ORDINAL"])


class GpuShare(NamedTuple):
    """What one instance gets on its host. cpus: empty where it is bound to none."""

    variables: dict[str, str]
    cpus: str


class _Numbered(NamedTuple):
    """A GPU of which nothing is known but its number."""

    vendor: str
    node: int = -1
    cpus: str = ""


class TooFewGpus(InvalidRequest):
    """The job has fewer GPUs on a host than its instances are to drive."""


def visibility(options: Options, environ: Mapping[str, str], *, devices: bool) -> str:
    """`task`, `node`, or nothing where GPUs of Slurm's are not what the launch runs on.

    devices: whether it was told of other ones, a partition say. Raises InvalidRequest.
    """
    chosen = options.gpu_visibility or ""
    if not chosen:
        granted = any(environ.get(name) for name in (*_GRANTED, *_ASKED & {*environ}))
        return "task" if granted and "SLURM_JOB_ID" in environ and not devices else ""
    if "SLURM_JOB_ID" not in environ:
        raise InvalidRequest(
            f"--gpu-visibility={chosen} is for GPUs that Slurm granted, and this is no job of its",
            would_work="Start poprun inside the job (sbatch, salloc)",
        )
    return chosen


def for_step(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment from which srun takes no request for GPUs over: a step says its own."""
    return {name: value for name, value in environ.items() if name not in _ASKED}


def too_few(error: PodwrightError, count: int) -> PodwrightError:
    """The error of a host that has fewer GPUs than are asked of it there; any other as it is."""
    words = ("generic resource", "gres", "Requested node configuration")
    if not any(word in error.problem for word in words):
        return error
    return TooFewGpus(error.problem, would_work=_hint(count))


def _hint(count: int) -> str:
    return f"Ask Slurm per node: --gpus-per-node={count}, and not in all or per task"


class InstancePlacement:
    """Asks Slurm where the job's nodes hang, while the launch goes on."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        import subprocess

        self._asked: subprocess.Popen[str] | None = None
        program = find_program("scontrol", environ)
        if program:
            self._asked = subprocess.Popen(
                [program, "show", "topology"],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def problem(self, nodes: Sequence[str]) -> str:
        """What is wrong with these nodes, in a sentence; empty if nothing is, or nobody knows."""
        import subprocess

        if self._asked is None:
            return ""
        try:
            text, _ = self._asked.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._asked.kill()
            self._asked.communicate()
            return ""
        return scattered(nodes, text) if self._asked.returncode == 0 else ""


def simulated(environ: Mapping[str, str]) -> bool:
    """Whether the GPUs exist only in software."""
    return any(environ.get(name) for name in STANDINS)


def shares(
    count: int, each: int, how: str, strategy: str, cores: Cores | None, environ: Mapping[str, str]
) -> list[GpuShare]:
    """What each of `count` instances on this host gets: `each` GPUs. Raises TooFewGpus."""
    gpus, names = _granted(environ)
    if len(gpus) < count * each:
        many = f"{count} instances of {each} GPUs each" if each > 1 else f"{count} instances"
        raise TooFewGpus(
            f"the job has {len(gpus)} GPUs here, and {many} need {count * each}",
            would_work=_hint(count * each),
        )
    strategy = strategy if cores and cores.cores else "disabled"
    located = any(gpu.node >= 0 for gpu in gpus)
    placed = _placed(strategy, cores, count, located)
    mine = _divided(gpus, placed, count, each)
    order = [n for own in mine for n in own]
    order += [n for n in range(len(gpus)) if n not in order]
    variable = _ROCR if gpus and gpus[0].vendor == "amd" else _CUDA
    near = (
        _cores_near_gpus(gpus, mine, cores)
        if cores and located and strategy == "spreadnuma"
        else None
    )
    out = []
    for index, own in enumerate(mine):
        seen = own if how == "task" else order
        variables = {
            variable: ",".join(names[n] for n in seen),
            OWN_GPUS: ",".join(names[n] for n in own),
        }
        if simulated(environ):
            variables[SIMULATED_VARIABLE] = "1"
        bound = near[index] if near else _cpus(placed[index])
        out.append(GpuShare(variables, bound))
    return out


def _granted(environ: Mapping[str, str]) -> tuple[Sequence[Gpu | _Numbered], list[str]]:
    """The GPUs that this process may hand on, and the word by which each is named."""
    found: Sequence[Gpu] = ()
    if simulated(environ) or any(map(os.path.exists, _DRIVERS)):
        from podwright.hosts.gpus import take_inventory, visible

        found = visible(environ, take_inventory(environ).gpus)
    said = environ.get(_CUDA) or environ.get(_ROCR) or ""
    names = [word for word in said.split(",") if word]
    if found:
        return found, names or [str(n) for n in range(len(found))]
    vendor = "nvidia" if environ.get(_CUDA) else "amd"
    return [_Numbered(vendor) for _ in names], names


def _placed(
    strategy: str, cores: Cores | None, count: int, located: bool
) -> Sequence[InstancePlace | None]:
    """Places that are chosen before the GPUs. By default cores follow the GPUs, where known."""
    if cores is None or strategy == "disabled" or (located and strategy == "spreadnuma"):
        return [None] * count
    return places(strategy, cores, count)


def _divided(
    gpus: Sequence[Gpu | _Numbered], placed: Sequence[InstancePlace | None], count: int, each: int
) -> list[list[int]]:
    """The places of each instance's GPUs: by NUMA node, those near to its cores first."""
    free = sorted(range(len(gpus)), key=lambda n: (gpus[n].node, n))
    out = []
    for place in placed:
        nodes = place.nodes if place else ()
        free.sort(key=lambda n: (bool(nodes) and gpus[n].node not in nodes, gpus[n].node, n))
        out.append(sorted(free[:each]))
        free = free[each:]
    return out


def _cores_near_gpus(
    gpus: Sequence[Gpu | _Numbered], mine: Sequence[Sequence[int]], cores: Cores
) -> list[str]:
    """Cores near to each instance's GPUs; those that are near to several are divided."""
    from podwright.hosts.gpus import near_cores

    beside = [near_cores([gpus[n] for n in own], cores) for own in mine]
    out = []
    for index, some in enumerate(beside):
        rivals = [n for n, other in enumerate(beside) if other == some]
        at, many = rivals.index(index), len(rivals)
        first = len(some) * at // many
        last = max(len(some) * (at + 1) // many, first + 1)
        out.append(_listed(some[first:last], cores))
    return out


def _listed(some: Sequence[CpuCore], cores: Cores) -> str:
    every = len(some) == len(cores.cores)
    return "" if every else write_list(cpu for core in some for cpu in core.cpus)


def _cpus(place: InstancePlace | None) -> str:
    return write_list(place.cpus) if place and place.bound else ""
