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
from podwright.launcher.options._core_placement import InstancePlace, places
from podwright.launcher.options._instance_environment import SIMULATED_VARIABLE
from podwright.launcher.options._option_table import Options

if TYPE_CHECKING:
    from podwright.hosts.gpus import Gpu

#: In an instance's environment: its own GPUs, named as in its vendor's variable.
OWN_GPUS_VARIABLE = "PODWRIGHT_OWN_GPUS"
_CUDA, _ROCR = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
#: As in `podwright.hosts.gpus`, which is imported only if there are GPUs to examine.
STANDINS = ("PODWRIGHT_STANDIN_NVML", "PODWRIGHT_STANDIN_AMDSMI")
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
#: The variables that show a job's GPUs, and those that srun would take as a request of its own.
_GRANTED_VARIABLES = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
_REQUESTED_GPU_VARIABLES = frozenset(
    [
        *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET"),
        *("SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_CPUS_PER_GPU"),
        *("SLURM_TRES_PER_TASK", "SLURM_TRES_BIND"),
    ]
)
#: The variables with a host's own GPUs, which Slurm sets on each host and a relay keeps.
HOST_GPU_VARIABLES = frozenset([*_GRANTED_VARIABLES, _CUDA, _ROCR, "GPU_DEVICE_ORDINAL"])


class GpuShare(NamedTuple):
    """One instance's share of its host. cpus: empty if it is bound to none."""

    variables: dict[str, str]
    cpus: str


class _NumberedGpu(NamedTuple):
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
    chosen_visibility = options.gpu_visibility or ""
    if not chosen_visibility:
        has_granted_gpus = any(
            environ.get(variable)
            for variable in (*_GRANTED_VARIABLES, *_REQUESTED_GPU_VARIABLES & {*environ})
        )
        return "task" if has_granted_gpus and "SLURM_JOB_ID" in environ and not devices else ""
    if "SLURM_JOB_ID" not in environ:
        raise InvalidRequest(
            f"--gpu-visibility={chosen_visibility} is for GPUs that Slurm granted; this is not a "
            "Slurm job",
            would_work="Start poprun inside the job (sbatch, salloc)",
        )
    return chosen_visibility


def environment_for_step(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without requests for GPUs that srun would take over: a step has its
    own.
    """
    return {
        variable: value
        for variable, value in environ.items()
        if variable not in _REQUESTED_GPU_VARIABLES
    }


def as_too_few_gpus(error: PodwrightError, gpus_per_node: int) -> PodwrightError:
    """Return TooFewGpus if srun found fewer GPUs on a host than requested; any other error
    unchanged.
    """
    shortage_phrases = ("generic resource", "gres", "Requested node configuration")
    if not any(phrase in error.problem for phrase in shortage_phrases):
        return error
    return TooFewGpus(error.problem, would_work=_gpus_per_node_hint(gpus_per_node))


def _gpus_per_node_hint(gpus_per_node: int) -> str:
    return f"Ask Slurm per node: --gpus-per-node={gpus_per_node}, and not in all or per task"


class InstancePlacement:
    """Asks Slurm which switches the job's nodes are attached to, while the launch goes on."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        import subprocess

        self._topology: subprocess.Popen[str] | None = None
        path = find_program("scontrol", environ)
        if path:
            self._topology = subprocess.Popen(
                [path, "show", "topology"],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def problem(self, node_names: Sequence[str]) -> str:
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
        return scattered(node_names, text) if self._topology.returncode == 0 else ""


def simulated(environ: Mapping[str, str]) -> bool:
    """Return whether the GPUs exist only in software."""
    return any(environ.get(variable) for variable in STANDINS)


def shares(
    instance_count: int,
    gpus_per_instance: int,
    gpu_visibility: str,
    strategy: str,
    cores: Cores | None,
    environ: Mapping[str, str],
) -> list[GpuShare]:
    """Return the shares of `instance_count` instances on this host, with `gpus_per_instance` GPUs
    each. Raises TooFewGpus.
    """
    gpus, gpu_names = _granted_gpus(environ)
    if len(gpus) < instance_count * gpus_per_instance:
        needed_text = (
            f"{instance_count} instances of {gpus_per_instance} GPUs each"
            if gpus_per_instance > 1
            else f"{instance_count} instances"
        )
        raise TooFewGpus(
            f"the job has {len(gpus)} GPUs here, and {needed_text} need "
            f"{instance_count * gpus_per_instance}",
            would_work=_gpus_per_node_hint(instance_count * gpus_per_instance),
        )
    strategy = strategy if cores and cores.cores else "disabled"
    has_numa_nodes = any(gpu.node >= 0 for gpu in gpus)
    placements = _places_before_gpus(strategy, cores, instance_count, has_numa_nodes)
    indices_of = _divided_gpus(gpus, placements, instance_count, gpus_per_instance)
    gpu_order = [gpu_index for own_indices in indices_of for gpu_index in own_indices]
    gpu_order += [gpu_index for gpu_index in range(len(gpus)) if gpu_index not in gpu_order]
    visible_variable = _ROCR if gpus and gpus[0].vendor == "amd" else _CUDA
    near_cpus = (
        _cores_near_gpus(gpus, indices_of, cores)
        if cores and has_numa_nodes and strategy == "spreadnuma"
        else None
    )
    gpu_shares = []
    for instance_index, own_indices in enumerate(indices_of):
        visible_indices = own_indices if gpu_visibility == "task" else gpu_order
        variables = {
            visible_variable: ",".join(gpu_names[gpu_index] for gpu_index in visible_indices),
            OWN_GPUS_VARIABLE: ",".join(gpu_names[gpu_index] for gpu_index in own_indices),
        }
        if simulated(environ):
            variables[SIMULATED_VARIABLE] = "1"
        cpu_list = (
            near_cpus[instance_index] if near_cpus else _bound_cpu_list(placements[instance_index])
        )
        gpu_shares.append(GpuShare(variables, cpu_list))
    return gpu_shares


def _granted_gpus(environ: Mapping[str, str]) -> tuple[Sequence[Gpu | _NumberedGpu], list[str]]:
    """Return the GPUs that this process may pass on, and the name of each."""
    gpus: Sequence[Gpu] = ()
    if simulated(environ) or any(map(os.path.exists, _DRIVERS)):
        from podwright.hosts.gpus import take_inventory, visible

        gpus = visible(environ, take_inventory(environ).gpus)
    visible_names = environ.get(_CUDA) or environ.get(_ROCR) or ""
    gpu_names = [name for name in visible_names.split(",") if name]
    if gpus:
        return gpus, gpu_names or [str(index) for index in range(len(gpus))]
    vendor = "nvidia" if environ.get(_CUDA) else "amd"
    return [_NumberedGpu(vendor) for _ in gpu_names], gpu_names


def _places_before_gpus(
    strategy: str, cores: Cores | None, instance_count: int, has_numa_nodes: bool
) -> Sequence[InstancePlace | None]:
    """Return places that are chosen before the GPUs. By default cores follow the GPUs, if known."""
    if cores is None or strategy == "disabled" or (has_numa_nodes and strategy == "spreadnuma"):
        return [None] * instance_count
    return places(strategy, cores, instance_count)


def _divided_gpus(
    gpus: Sequence[Gpu | _NumberedGpu],
    placements: Sequence[InstancePlace | None],
    instance_count: int,
    gpus_per_instance: int,
) -> list[list[int]]:
    """Return each instance's GPUs, by NUMA node, those near to its cores first."""
    indices = sorted(range(len(gpus)), key=lambda gpu_index: (gpus[gpu_index].node, gpu_index))
    divided = []
    for placement in placements:
        nodes = placement.nodes if placement else ()
        indices.sort(
            key=lambda gpu_index: (
                bool(nodes) and gpus[gpu_index].node not in nodes,
                gpus[gpu_index].node,
                gpu_index,
            )
        )
        divided.append(sorted(indices[:gpus_per_instance]))
        indices = indices[gpus_per_instance:]
    return divided


def _cores_near_gpus(
    gpus: Sequence[Gpu | _NumberedGpu], indices_of: Sequence[Sequence[int]], cores: Cores
) -> list[str]:
    """Return cores near to each instance's GPUs. Cores that are near to several instances are
    divided.
    """
    from podwright.hosts.gpus import near_cores

    cores_by_instance = [
        near_cores([gpus[position] for position in indices], cores) for indices in indices_of
    ]
    core_lists = []
    for instance_index, candidates in enumerate(cores_by_instance):
        rivals = [
            position
            for position, other_cores in enumerate(cores_by_instance)
            if other_cores == candidates
        ]
        rival_index, rival_count = rivals.index(instance_index), len(rivals)
        first_core = len(candidates) * rival_index // rival_count
        end_core = max(len(candidates) * (rival_index + 1) // rival_count, first_core + 1)
        core_lists.append(_cpu_list_of_cores(candidates[first_core:end_core], cores))
    return core_lists


def _cpu_list_of_cores(chosen_cores: Sequence[CpuCore], cores: Cores) -> str:
    has_all_cores = len(chosen_cores) == len(cores.cores)
    return "" if has_all_cores else write_list(cpu for core in chosen_cores for cpu in core.cpus)


def _bound_cpu_list(placement: InstancePlace | None) -> str:
    return write_list(placement.cpus) if placement and placement.bound else ""
