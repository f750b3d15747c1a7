"""Divides the GPUs that Slurm granted among the instances: the launcher owns the binding.

Slurm is the only allocator then, and no server is asked. Slurm is asked for GPUs per node, and each
host divides its GPUs among its own instances so that near cores and GPUs go together. Slurm's own
ways of binding differ by release, and hide peers from each other.

With visibility `task` an instance sees only its own GPUs. With `node` it sees all GPUs that its
host was granted, in the order of the instances, so that its own begin at LOCAL_RANK. Programs that
open their peers' memory need that. The words for visibility are our choice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest, PodwrightError
from podwright.hosts import Cores, CpuCore, find_program, scattered, write_list
from podwright.launcher.options._environment import SIMULATED_VARIABLE
from podwright.launcher.options._options import Options
from podwright.launcher.options._placement import InstancePlace, places

if TYPE_CHECKING:
    from podwright.hosts.gpus import Gpu

#: In an instance's environment: its own GPUs, named as in its vendor's variable.
OWN_GPUS = "PODWRIGHT_OWN_GPUS"
_CUDA, _ROCR = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
#: As in `podwright.hosts.gpus`, which is imported only if there are GPUs to examine.
STANDINS = ("PODWRIGHT_STANDIN_NVML", "PODWRIGHT_STANDIN_AMDSMI")
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
#: The variables that show a job's GPUs, and those that srun would take as a request of its own.
_GRANTED = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
_ASKED = frozenset(
    [
        *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET"),
        *("SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_CPUS_PER_GPU"),
        *("SLURM_TRES_PER_TASK", "SLURM_TRES_BIND"),
    ]
)
#: The variables with a host's own GPUs, which Slurm sets on each host and a relay keeps.
OF_HOST = frozenset([*_GRANTED, _CUDA, _ROCR, "GPU_DEVICE_ORDINAL"])


class GpuShare(NamedTuple):
    """One instance's share of its host. cpus: empty if it is bound to none."""

    variables: dict[str, str]
    cpus: str


class _Numbered(NamedTuple):
    """A GPU of which only the number is known."""

    vendor: str
    node: int = -1
    cpus: str = ""


class TooFewGpus(InvalidRequest):
    """The job has fewer GPUs on a host than its instances need."""


def visibility(options: Options, environ: Mapping[str, str], *, devices: bool) -> str:
    """Return `task` or `node`; empty when the launch does not run on Slurm's GPUs.

    devices: whether other devices were named, for example a partition. Raises InvalidRequest.
    """
    chosen = options.gpu_visibility or ""
    if not chosen:
        granted = any(environ.get(name) for name in (*_GRANTED, *_ASKED & {*environ}))
        return "task" if granted and "SLURM_JOB_ID" in environ and not devices else ""
    if "SLURM_JOB_ID" not in environ:
        raise InvalidRequest(
            f"--gpu-visibility={chosen} is for GPUs that Slurm granted; this is not a Slurm job",
            would_work="Start poprun inside the job (sbatch, salloc)",
        )
    return chosen


def for_step(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without requests for GPUs that srun would take over: a step has its
    own.
    """
    return {name: value for name, value in environ.items() if name not in _ASKED}


def too_few(error: PodwrightError, count: int) -> PodwrightError:
    """Return TooFewGpus if srun found fewer GPUs on a host than requested; any other error
    unchanged.
    """
    words = ("generic resource", "gres", "Requested node configuration")
    if not any(word in error.problem for word in words):
        return error
    return TooFewGpus(error.problem, would_work=_hint(count))


def _hint(count: int) -> str:
    return f"Ask Slurm per node: --gpus-per-node={count}, and not in all or per task"


class InstancePlacement:
    """Asks Slurm which switches the job's nodes are attached to, while the launch goes on."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        import subprocess

        self._topology: subprocess.Popen[str] | None = None
        program = find_program("scontrol", environ)
        if program:
            self._topology = subprocess.Popen(
                [program, "show", "topology"],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def problem(self, nodes: Sequence[str]) -> str:
        """Return what is wrong with these nodes, in a sentence; empty if nothing is, or if it is
        not known.
        """
        import subprocess

        if self._topology is None:
            return ""
        try:
            text, _ = self._topology.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._topology.kill()
            self._topology.communicate()
            return ""
        return scattered(nodes, text) if self._topology.returncode == 0 else ""


def simulated(environ: Mapping[str, str]) -> bool:
    """Return whether the GPUs exist only in software."""
    return any(environ.get(name) for name in STANDINS)


def shares(
    count: int, each: int, how: str, strategy: str, cores: Cores | None, environ: Mapping[str, str]
) -> list[GpuShare]:
    """Return the shares of `count` instances on this host, with `each` GPUs each. Raises
    TooFewGpus.
    """
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
    indices_of = _divided(gpus, placed, count, each)
    order = [n for own in indices_of for n in own]
    order += [n for n in range(len(gpus)) if n not in order]
    variable = _ROCR if gpus and gpus[0].vendor == "amd" else _CUDA
    near = (
        _cores_near_gpus(gpus, indices_of, cores)
        if cores and located and strategy == "spreadnuma"
        else None
    )
    out = []
    for index, own in enumerate(indices_of):
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
    """Return the GPUs that this process may pass on, and the name of each."""
    gpus: Sequence[Gpu] = ()
    if simulated(environ) or any(map(os.path.exists, _DRIVERS)):
        from podwright.hosts.gpus import take_inventory, visible

        gpus = visible(environ, take_inventory(environ).gpus)
    visible_names = environ.get(_CUDA) or environ.get(_ROCR) or ""
    names = [word for word in visible_names.split(",") if word]
    if gpus:
        return gpus, names or [str(n) for n in range(len(gpus))]
    vendor = "nvidia" if environ.get(_CUDA) else "amd"
    return [_Numbered(vendor) for _ in names], names


def _placed(
    strategy: str, cores: Cores | None, count: int, located: bool
) -> Sequence[InstancePlace | None]:
    """Return places that are chosen before the GPUs. By default cores follow the GPUs, if known."""
    if cores is None or strategy == "disabled" or (located and strategy == "spreadnuma"):
        return [None] * count
    return places(strategy, cores, count)


def _divided(
    gpus: Sequence[Gpu | _Numbered], placed: Sequence[InstancePlace | None], count: int, each: int
) -> list[list[int]]:
    """Return each instance's GPUs, by NUMA node, those near to its cores first."""
    free = sorted(range(len(gpus)), key=lambda n: (gpus[n].node, n))
    out = []
    for place in placed:
        nodes = place.nodes if place else ()
        free.sort(key=lambda n: (bool(nodes) and gpus[n].node not in nodes, gpus[n].node, n))
        out.append(sorted(free[:each]))
        free = free[each:]
    return out


def _cores_near_gpus(
    gpus: Sequence[Gpu | _Numbered], indices_of: Sequence[Sequence[int]], cores: Cores
) -> list[str]:
    """Return cores near to each instance's GPUs. Cores that are near to several instances are
    divided.
    """
    from podwright.hosts.gpus import near_cores

    nearby = [near_cores([gpus[n] for n in own], cores) for own in indices_of]
    out = []
    for index, candidates in enumerate(nearby):
        rivals = [n for n, other in enumerate(nearby) if other == candidates]
        rival_index, many = rivals.index(index), len(rivals)
        first = len(candidates) * rival_index // many
        last = max(len(candidates) * (rival_index + 1) // many, first + 1)
        out.append(_listed(candidates[first:last], cores))
    return out


def _listed(chosen: Sequence[CpuCore], cores: Cores) -> str:
    all_cores = len(chosen) == len(cores.cores)
    return "" if all_cores else write_list(cpu for core in chosen for cpu in core.cpus)


def _cpus(place: InstancePlace | None) -> str:
    return write_list(place.cpus) if place and place.bound else ""
