"""What one release of Slurm does and another does not: a name for each behaviour.

`release_of` chooses by version, once; whoever decides asks the Release by the behaviour's name.
The behaviours of 22.05, 24.11 and 26.05 were read in their sources and held against real Slurm;
where only the ends of a range were seen, a change is taken to have come with the first release
of the rewritten code (23.02, 25.05 or 25.11). To add a release: run the labs and the recorded
requests on it, and add a field here for what differs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

from podwright.errors import InvalidRequest

Version = tuple[int, int]

OLDEST: Final[Version] = (22, 5)
NEWEST: Final[Version] = (26, 5)


class ReleaseRange(NamedTuple):
    """The releases from `first` on, and before `until`."""

    first: tuple[int, ...]
    until: Version


def _since(*first: int, until: Version = (99, 0)) -> Any:
    """A behaviour of the releases from `first` on, and before `until`."""
    return ReleaseRange(first, until)


class Release:
    """The behaviours of one release; `version` is (22, 5) for 22.05.

    No dataclass: that module was a quarter of the time in which `podwright slurm lint` starts.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        for name, one in vars(Release).items():
            if isinstance(one, ReleaseRange):
                setattr(self, name, one.first <= version < one.until)

    # What sbatch, salloc and srun make of their options
    nodelist_is_pool: bool = _since(23, 2)  # more names than --nodes are those to choose from
    srun_cuts_nodelist: bool = _since(22, 5, until=(23, 2))  # to what --nodes allows
    counts_tasks_at_server: bool = _since(23, 2)  # slurmctld multiplies --ntasks-per-node
    sockets_override_hint: bool = _since(23, 2)  # --hint is ignored beside --sockets-per-node
    checks_option_conflicts: bool = _since(23, 2)  # --exclusive with --oversubscribe, and so on
    refuses_fewer_tasks_than_nodes: bool = _since(26, 5)
    takes_lists_of_nodes: bool = _since(23, 2)  # --nodes=2,4 or 2-8:2
    last_mail_type_wins: bool = _since(25, 5)  # before, the types of all lines were put together

    # What slurmctld checks of counts
    cpus_per_task_is_tres: bool = _since(23, 2)  # --cpus-per-task is a part of --tres-per-task
    needs_gpus_for_their_cpus: bool = _since(23, 2)  # --cpus-per-gpu without GPUs is refused
    counts_cpus_of_gpus_early: bool = _since(23, 2)  # --cpus-per-gpu raises the job's CPUs
    counts_cpus_of_tasks_late: bool = _since(25, 5)  # again, with --overcommit and GPUs' tasks
    limits_cpus_of_tasks: bool = _since(24, 11)  # MaxMemPerCPU changes --cpus-per-task
    corrects_gpus_by_tasks: bool = _since(23, 2)  # --gpus follows --gpus-per-task at the server
    enforces_binding_by_site: bool = _since(23, 2)  # SelectTypeParameters=ENFORCE_BINDING_GRES

    # Partitions and their limits
    judges_partitions_apart: bool = _since(23, 2)  # one's whole nodes say nothing of the others
    tests_jobs_over_limits: bool = _since(23, 2)  # whether they could ever run
    keeps_jobs_of_down_partitions: bool = _since(23, 2)  # even those that could never run there
    skips_oversized_jobs: bool = _since(25, 5)  # but not those over a limit on nodes or CPUs
    exclusive_user_shares: bool = _since(23, 2)  # --exclusive=user is no whole node to limits
    limits_cpus_per_socket: bool = _since(23, 2)  # MaxCPUsPerSocket
    limits_memory_of_richest_node: bool = _since(24, 11)  # of whole nodes; before, of the first

    # Which nodes
    checks_chosen_nodes: bool = _since(22, 5, until=(26, 5))  # too many: the job waits
    tasks_bound_nodes: bool = _since(26, 5)  # --ntasks is the most nodes where --nodes is not given
    tries_single_nodes_first: bool = _since(26, 5)  # a job of one node: the first that does
    tasks_per_node_spans_nodes: bool = _since(23, 2)  # with it --ntasks no longer bounds nodes
    retries_with_all_nodes: bool = _since(23, 2)  # a retry may use as many as are allowed
    retries_each_worth: bool = _since(23, 2)  # leaving out again at the same worth
    drops_poorest_node: bool = _since(25, 11)  # one node at a time, where all do not do
    ranks_nodes_by_product: bool = _since(25, 11)  # CPUs times GPUs, where it was their sum
    reserves_gpus_for_nodes: bool = _since(23, 2)  # one of --gpus for each node still to come
    compares_uncut_nodes: bool = _since(23, 2)  # least loaded: by all that a node offers
    offers_last_node: bool = _since(25, 11)  # least loaded: with the CPUs of the last one looked at
    spreads_tasks_in_turn: bool = _since(23, 2)  # --spread-job: a task on every node first
    spreads_over_weights: bool = _since(25, 5)  # --spread-job takes a node of every weight
    switches_count_cpus: bool = _since(23, 2)  # a switch with too few CPUs does not fit
    switches_count_asked_nodes: bool = _since(23, 2)  # weights go on until the asked are there
    switches_take_fewer_nodes: bool = _since(23, 2)  # of a range, by --switches (try_again)
    bounds_leaves_in_use: bool = _since(25, 5)  # leaves with nodes of the job: the most nodes
    rechecks_lighter_nodes: bool = _since(23, 2)  # one whose GPUs do not do is left out

    # Cores of a node
    honours_threads_per_core: bool = _since(23, 2)  # --threads-per-core where GPUs count CPUs
    sizes_cpus_by_tasks: bool = _since(23, 2)  # only CPUs that make whole tasks
    trims_cores_last: bool = _since(23, 2)  # cores are given up when the nodes are chosen
    keeps_cores_of_gpus: bool = _since(23, 2)  # --cpus-per-gpu keeps its cores from the trim
    refuses_overfull_nodes: bool = _since(23, 2)  # before, tasks were laid beyond the CPUs
    lays_tasks_as_said: bool = _since(23, 2)  # --ntasks, not the CPUs, says how many
    lays_tasks_per_node: bool = _since(25, 11)  # --ntasks-per-node even before --ntasks
    rounds_cores_of_memory_up: bool = _since(25, 11)  # --mem-per-cpu with --threads-per-core
    counts_cpus_of_gpus: bool = _since(23, 2, until=(25, 11))  # where sockets are counted

    # GPUs of a node
    tasks_per_gpu_is_range: bool = _since(23, 2)  # --ntasks-per-gpu bounds a node's tasks
    estimates_cpus_per_gpu: bool = _since(23, 2)  # where tasks and GPUs divide evenly
    restores_gpus_on_retry: bool = _since(23, 2)  # a second look starts from all GPUs again
    caps_gpus_of_node: bool = _since(23, 2)  # no more of a node than are still missing
    gpus_bound_tasks: bool = _since(23, 2)  # a node's tasks follow its GPUs, and they them
    tasks_bound_gpus: bool = _since(25, 11)  # a node's GPUs follow the tasks of the whole job
    wants_all_sockets: bool = _since(23, 2)  # GPUs beside no socket want each of them
    keeps_all_sockets: bool = _since(23, 2)  # binding no longer leaves out poorer sockets
    shares_gpus_over_sockets: bool = _since(23, 2)  # as the cores are; before, one each first
    refuses_short_grants: bool = _since(23, 2)  # before, a job started with fewer GPUs
    counts_tasks_by_cpus: bool = _since(23, 2)  # before, each thread was a task
    remembers_missing_gpus: bool = _since(24, 5)  # of one type, though those of another are there
    counts_tasks_of_all_cores: bool = _since(25, 11)  # not only up to the node's limit
    packs_shards: bool = _since(23, 2)  # shares of GPUs by task, and on several GPUs

    # Steps: srun in a job
    steps_follow_job_cores: bool = _since(22, 5, until=(23, 2))  # tasks of a core, of a socket
    srun_ignores_cpus_per_task: bool = _since(22, 5, until=(23, 11))  # its job's
    srun_reads_tres_per_task: bool = _since(23, 2, until=(25, 5))  # its job's -c as TRES
    counts_step_cores: bool = _since(23, 2)  # of a step that has all of its job on a node
    srun_reads_tasks_per_core: bool = _since(23, 11)  # SLURM_NTASKS_PER_CORE
    ignores_verbose_binding: bool = _since(23, 2)  # --cpu-bind=verbose keeps the site's default
    binds_shared_cores_by_thread: bool = _since(23, 2)  # --ntasks-per-core above 1
    counts_step_tasks_late: bool = _since(23, 2)  # --cpus-per-task and no --ntasks
    step_cpus_follow_gpus: bool = _since(23, 2)  # --cpus-per-gpu counts for a step as well
    step_gpus_of_all_nodes: bool = _since(23, 2)  # --gpus-per-node times the step's nodes
    counts_free_threads: bool = _since(26, 5)  # free CPUs of a step by --threads-per-core
    steps_share_grant: bool = _since(23, 2)  # held against what the job has, not what it asked
    steps_need_room: bool = _since(23, 2)  # a step that does not fit fails; before, it hangs
    prefers_rich_nodes: bool = _since(23, 2)  # nodes with an equal share of GPUs first
    bounds_step_gpus: bool = _since(23, 2)  # before, an unsigned count went below zero
    counts_whole_nodes_as_one: bool = _since(23, 2)  # GPUs of all types of a whole node

    # Which GPUs a task sees
    bind_none_shows_all: bool = _since(23, 2)  # before, CUDA_VISIBLE_DEVICES was unset
    binds_typed_gpus_per_task: bool = _since(23, 2)  # --gpus-per-task=a100:2 binds as 2
    binds_by_free_cores: bool = _since(23, 2)  # single and per_task share nearest GPUs out
    binds_by_short_names: bool = _since(25, 5)  # --gpu-bind=map:… beside map_gpu:…
    binds_single_task: bool = _since(25, 11)  # also a task that is alone on its node

    # Configuration files
    block_topology: bool = _since(24, 11)  # topology/block as `configure` writes it
    has_segments: bool = _since(24, 5)  # --segment
    has_large_segments: bool = _since(25, 11)  # larger than the smallest of BlockSizes
    several_topologies: bool = _since(25, 5)  # topology.yaml, chosen by partition
    imex_switch: bool = _since(24, 11)  # SwitchType=switch/nvidia_imex

    def __str__(self) -> str:
        """22.05, as Slurm writes it."""
        return f"{self.version[0]}.{self.version[1]:02}"


@cache
def release_of(version: Version) -> Release:
    """The behaviours of the release with this version: (22, 5) and its like."""
    return Release(version)


def parse_version(text: str) -> Version:
    """(22, 5) from "22.05", "22.05.8" or "slurm 22.05.8"; InvalidRequest for anything else."""
    words = text.strip().split()
    parts = words[-1].split(".") if words else []
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise InvalidRequest(
            f"{text!r} is no version of Slurm", would_work="Write it as 22.05 or 24.11.5"
        )
    return int(parts[0]), int(parts[1])


def read_version(config: str) -> Version | None:
    """SLURM_VERSION in the output of `scontrol show config`."""
    found = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", config, re.M)
    return parse_version(found[1]) if found else None
