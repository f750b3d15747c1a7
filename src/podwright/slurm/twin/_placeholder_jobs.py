"""The present state, from what any user can read: placeholder jobs hold what the site's jobs hold.

scontrol shows which GPUs of a node are in use, by their numbers, and how many CPUs and how much
memory. A job cannot ask Slurm for a GPU by its number. So the GPUs of a node are taken one at a
time, by a job for each, and the jobs on GPUs that should be free are cancelled again. Where
PrivateData hides jobs, only root can read which CPUs a job of another user has. The number of CPUs
in use is the same as on the site's node, but not which ones.

A cancelled job ends when slurmd of its node reports that. So the slurmd of each node in use runs
meanwhile, which limits the number of nodes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from podwright.errors import InvalidRequest
from podwright.slurm.reader import read_nodes
from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.twin._read_twin_answer import granted_nodes, numbers
from podwright.slurm.twin._site_conf import pairs
from podwright.slurm.twin._twin_types import NodeUse, Present

MOST_NODES_IN_USE = 32
_END_LIMIT_S = 30.0  # seconds
Run = Callable[[list[str]], CommandResult]
_RESERVATION_FLAGS = ("MAINT", "IGNORE_JOBS", "FLEX", "OVERLAP")


def present_from(jobs: str, nodes: str, reservations: str = "") -> Present:
    """Return what the nodes of a cluster are used for.

    jobs, nodes: what `scontrol --oneliner --details show job` and `show node` print; jobs may be
    empty, as PrivateData hides them. reservations: what `scontrol --oneliner show reservation`
    prints.

    Raises InvalidRequest where more than MOST_NODES_IN_USE nodes are in use, and FieldNotKnown
    where Slurm does not show what a node has in use.
    """
    shares_by_gpu = _shares_per_gpu(jobs)
    node_uses = []
    for node in read_nodes(nodes):
        cpus, memory_mib = node.allocated_cpus, node.allocated_memory_mib
        gpus = _used_gpus(node.used_gres)
        if not (cpus or gpus):
            continue
        node_name = node.name
        shares = {gpu: shares_by_gpu.get((node_name, gpu), (0, 0)) for gpu in gpus}
        node_uses.append(
            NodeUse(node_name, _fill_unknown_shares(shares, cpus, memory_mib), cpus, memory_mib)
        )
    if len(node_uses) > MOST_NODES_IN_USE:
        raise InvalidRequest(
            f"{len(node_uses)} nodes are in use, and placeholders serve {MOST_NODES_IN_USE}",
            would_work="Ask `podwright slurm twin serve`, which copies the state of slurmctld",
        )
    reservation_words = tuple(
        _reservation_arguments(reservation_line)
        for reservation_line in reservations.splitlines()
        if "=" in reservation_line
    )
    return Present(
        {},
        uses=tuple(node_uses),
        reservations=tuple(filter(None, reservation_words)),
        source="scontrol",
    )


def _used_gpus(gres_text: str) -> tuple[int, ...]:
    """Return the numbers in `gpu:h100:2(IDX:0,3),gpu:a100:0(IDX:N/A)`."""
    gpu_numbers: list[int] = []
    for index_list in re.findall(r"gpu[^(,]*\(IDX:([^)]*)\)", gres_text):
        gpu_numbers += numbers(index_list)
    return tuple(sorted(gpu_numbers))


def _shares_per_gpu(jobs: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (CPUs, MiB) of the job on each GPU, by (node, GPU). A job's share of a node is divided
    evenly among its GPUs there.
    """
    job_shares = {}
    for job_line in jobs.splitlines():
        if "JobState=RUNNING" not in job_line:
            continue
        for node in granted_nodes(job_line):
            for gpu in node.gpus:
                gpu_count = len(node.gpus)
                job_shares[node.name, gpu] = (len(node.cpus) // gpu_count, node.memory // gpu_count)
    return job_shares


def _fill_unknown_shares(
    shares: dict[int, tuple[int, int]], cpus: int, memory: int
) -> dict[int, tuple[int, int]]:
    """Return the shares with at least one CPU for each GPU. What is not known is divided evenly."""
    unknown_gpus = [gpu for gpu, (known_amount, _) in shares.items() if not known_amount]
    remaining_cpus = cpus - sum(known_amount for known_amount, _ in shares.values())
    remaining_memory = memory - sum(known_amount for _, known_amount in shares.values())
    for gpu in unknown_gpus:
        shares[gpu] = (
            max(1, remaining_cpus // len(unknown_gpus)),
            max(0, remaining_memory // len(unknown_gpus)),
        )
    return shares


def _reservation_arguments(reservation_line: str) -> tuple[str, ...]:
    """Return the words for `scontrol create reservation`.

    The users are kept, because their names decide who may use it. Accounts are left out, because a
    twin has none.
    """
    fields = pairs(reservation_line)
    if not fields.get("ReservationName") or fields.get("Nodes", "(null)") in ("", "(null)"):
        return ()
    flags = [flag for flag in fields.get("Flags", "").split(",") if flag in _RESERVATION_FLAGS]
    users = fields.get("Users", "(null)")
    return (
        f"ReservationName={fields['ReservationName']}",
        f"StartTime={fields.get('StartTime', 'now')}",
        f"EndTime={fields.get('EndTime', '')}",
        f"Nodes={fields['Nodes']}",
        f"Users={'root' if users in ('(null)', '') else users}",
        *((f"Flags={','.join(flags)}",) if flags else ()),
    )


def occupy_nodes(
    node_uses: Sequence[NodeUse], reservations: Sequence[Sequence[str]], run_as_slurm: Run
) -> tuple[str, ...]:
    """Put placeholders on nodes, and make reservations.

    Returns the nodes that could not be made like the site's. They are drained, so that no answer
    uses them. run_as_slurm: runs a command as Slurm's user.
    """
    unlike = tuple(
        node_use.name for node_use in node_uses if not _occupy_node(node_use, run_as_slurm)
    )
    for reservation_words in reservations:
        run_as_slurm(["scontrol", "create", "reservation", *reservation_words])
    if unlike:
        node_names = f"NodeName={','.join(unlike)}"
        run_as_slurm(["scontrol", "update", node_names, "State=DRAIN", "Reason=unlike"])
    return unlike


def _occupy_node(node_use: NodeUse, run_as_slurm: Run) -> bool:
    """Return whether afterwards the same GPUs, and as many CPUs, are in use as on the site's
    node.
    """
    wanted_gpus = dict(node_use.gpus)
    occupied_gpus: set[int] = set()
    surplus_jobs: list[str] = []
    while wanted_gpus:
        # Slurm mostly gives GPUs in the order of their numbers; the record shows which one it gave.
        expected_gpu = next(
            gpu_number
            for gpu_number in range(max(wanted_gpus) + 1)
            if gpu_number not in occupied_gpus
        )
        job_id, gpu = _place_on_gpu(
            node_use.name, wanted_gpus.get(expected_gpu, (1, 0)), run_as_slurm
        )
        if gpu in wanted_gpus and gpu != expected_gpu:
            _end_jobs([job_id], run_as_slurm)
            job_id, gpu = _place_on_gpu(node_use.name, wanted_gpus[gpu], run_as_slurm)
        if gpu is None or gpu in occupied_gpus:
            break
        occupied_gpus.add(gpu)
        if wanted_gpus.pop(gpu, None) is None:
            surplus_jobs.append(job_id)
    _end_jobs(surplus_jobs, run_as_slurm)
    remaining_cpus = node_use.cpus - sum(gpu_share[0] for gpu_share in node_use.gpus.values())
    remaining_memory = node_use.memory - sum(gpu_share[1] for gpu_share in node_use.gpus.values())
    if not wanted_gpus and remaining_cpus > 0:
        return bool(
            _start_job_at_once(node_use.name, remaining_cpus, remaining_memory, (), run_as_slurm)
        )
    return not wanted_gpus


def _place_on_gpu(
    node: str, gpu_share: tuple[int, int], run_as_slurm: Run
) -> tuple[str, int | None]:
    """Start a job on one GPU. Return its number and that of its GPU, or None for the GPU if it does
    not start.
    """
    job_id = _start_job_at_once(node, *gpu_share, ("--gres=gpu:1",), run_as_slurm)
    if not job_id:
        return "", None
    job_record = run_as_slurm(["scontrol", "--oneliner", "--details", "show", "job", job_id]).out
    granted_gpus = [gpu for granted_node in granted_nodes(job_record) for gpu in granted_node.gpus]
    return job_id, granted_gpus[0] if len(granted_gpus) == 1 else None


def _start_job_at_once(
    node: str, cpus: int, memory_mib: int, extra_options: Sequence[str], run_as_slurm: Run
) -> str:
    """Return the number of a job that starts at once, or "" if it does not."""
    # Memory of 0 would mean all memory of the node.
    size_options = (f"--cpus-per-task={cpus}", f"--mem={max(1, memory_mib)}", "--time=UNLIMITED")
    salloc_result = run_as_slurm(
        [
            "salloc",
            "--no-shell",
            "--immediate=5",
            f"--nodelist={node}",
            *size_options,
            *extra_options,
        ]
    )
    job_match = re.search(r"allocation (\d+)", salloc_result.err)
    return job_match[1] if job_match and salloc_result.code == 0 else ""


def _end_jobs(job_ids: Sequence[str], run_as_slurm: Run) -> None:
    """End jobs, and return when the slurmd of their nodes have reported that."""
    if not job_ids:
        return
    run_as_slurm(["scancel", *job_ids])
    deadline = time.monotonic() + _END_LIMIT_S
    while time.monotonic() < deadline:
        if not run_as_slurm(["squeue", "-h", "-t", "R,CG", "-j", ",".join(job_ids)]).out.strip():
            return
        time.sleep(0.05)
