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
from podwright.slurm.twin._job_record import granted_nodes, numbers
from podwright.slurm.twin._site_conf import pairs
from podwright.slurm.twin._values import NodeUse, Present

MOST_NODES_IN_USE = 32
_END_LIMIT = 30.0  # seconds
Run = Callable[[list[str]], CommandResult]
_FLAGS = ("MAINT", "IGNORE_JOBS", "FLEX", "OVERLAP")


def present_from(jobs: str, nodes: str, reservations: str = "") -> Present:
    """Return what the nodes of a cluster are used for.

    jobs, nodes: what `scontrol --oneliner --details show job` and `show node` print; jobs may be
    empty, as PrivateData hides them. reservations: what `scontrol --oneliner show reservation`
    prints.

    Raises InvalidRequest where more than MOST_NODES_IN_USE nodes are in use, and FieldNotKnown
    where Slurm does not show what a node has in use.
    """
    by_job = _per_gpu(jobs)
    uses = []
    for node in read_nodes(nodes):
        cpus, memory = node.allocated_cpus, node.allocated_memory_mib
        gpus = _used_gpus(node.used_gres)
        if not (cpus or gpus):
            continue
        name = node.name
        shares = {gpu: by_job.get((name, gpu), (0, 0)) for gpu in gpus}
        uses.append(NodeUse(name, _filled_up(shares, cpus, memory), cpus, memory))
    if len(uses) > MOST_NODES_IN_USE:
        raise InvalidRequest(
            f"{len(uses)} nodes are in use, and placeholders serve {MOST_NODES_IN_USE}",
            would_work="Ask `podwright slurm twin serve`, which copies the state of slurmctld",
        )
    reserved = tuple(_reservation(line) for line in reservations.splitlines() if "=" in line)
    return Present(
        {}, uses=tuple(uses), reservations=tuple(filter(None, reserved)), source="scontrol"
    )


def _used_gpus(text: str) -> tuple[int, ...]:
    """Return the numbers in `gpu:h100:2(IDX:0,3),gpu:a100:0(IDX:N/A)`."""
    used: list[int] = []
    for places in re.findall(r"gpu[^(,]*\(IDX:([^)]*)\)", text):
        used += numbers(places)
    return tuple(sorted(used))


def _per_gpu(jobs: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (CPUs, MiB) of the job on each GPU, by (node, GPU). A job's share of a node is divided
    evenly among its GPUs there.
    """
    shares = {}
    for line in jobs.splitlines():
        if "JobState=RUNNING" not in line:
            continue
        for node in granted_nodes(line):
            for gpu in node.gpus:
                each = len(node.gpus)
                shares[node.name, gpu] = (len(node.cpus) // each, node.memory // each)
    return shares


def _filled_up(
    shares: dict[int, tuple[int, int]], cpus: int, memory: int
) -> dict[int, tuple[int, int]]:
    """Return the shares with at least one CPU for each GPU. What is not known is divided evenly."""
    unknown = [gpu for gpu, (known, _) in shares.items() if not known]
    left_cpus = cpus - sum(known for known, _ in shares.values())
    left_memory = memory - sum(known for _, known in shares.values())
    for gpu in unknown:
        shares[gpu] = (max(1, left_cpus // len(unknown)), max(0, left_memory // len(unknown)))
    return shares


def _reservation(line: str) -> tuple[str, ...]:
    """Return the words for `scontrol create reservation`.

    The users are kept, because their names decide who may use it. Accounts are left out, because a
    twin has none.
    """
    fields = pairs(line)
    if not fields.get("ReservationName") or fields.get("Nodes", "(null)") in ("", "(null)"):
        return ()
    flags = [flag for flag in fields.get("Flags", "").split(",") if flag in _FLAGS]
    users = fields.get("Users", "(null)")
    return (
        f"ReservationName={fields['ReservationName']}",
        f"StartTime={fields.get('StartTime', 'now')}",
        f"EndTime={fields.get('EndTime', '')}",
        f"Nodes={fields['Nodes']}",
        f"Users={'root' if users in ('(null)', '') else users}",
        *((f"Flags={','.join(flags)}",) if flags else ()),
    )


def occupy(
    uses: Sequence[NodeUse], reservations: Sequence[Sequence[str]], run_as_slurm: Run
) -> tuple[str, ...]:
    """Put placeholders on nodes, and make reservations.

    Returns the nodes that could not be made like the site's. They are drained, so that no answer
    uses them. run_as_slurm: runs a command as Slurm's user.
    """
    unlike = tuple(use.name for use in uses if not _occupy_node(use, run_as_slurm))
    for words in reservations:
        run_as_slurm(["scontrol", "create", "reservation", *words])
    if unlike:
        names = f"NodeName={','.join(unlike)}"
        run_as_slurm(["scontrol", "update", names, "State=DRAIN", "Reason=unlike"])
    return unlike


def _occupy_node(use: NodeUse, run_as_slurm: Run) -> bool:
    """Return whether afterwards the same GPUs, and as many CPUs, are in use as on the site's
    node.
    """
    wanted = dict(use.gpus)
    occupied: set[int] = set()
    to_end: list[str] = []
    while wanted:
        # Slurm mostly gives GPUs in the order of their numbers; the record shows which one it gave.
        expected = next(n for n in range(max(wanted) + 1) if n not in occupied)
        job, gpu = _place(use.name, wanted.get(expected, (1, 0)), run_as_slurm)
        if gpu in wanted and gpu != expected:
            _end([job], run_as_slurm)
            job, gpu = _place(use.name, wanted[gpu], run_as_slurm)
        if gpu is None or gpu in occupied:
            break
        occupied.add(gpu)
        if wanted.pop(gpu, None) is None:
            to_end.append(job)
    _end(to_end, run_as_slurm)
    cpus = use.cpus - sum(share[0] for share in use.gpus.values())
    memory = use.memory - sum(share[1] for share in use.gpus.values())
    if not wanted and cpus > 0:
        return bool(_allocate(use.name, cpus, memory, (), run_as_slurm))
    return not wanted


def _place(node: str, share: tuple[int, int], run_as_slurm: Run) -> tuple[str, int | None]:
    """Start a job on one GPU. Return its number and that of its GPU, or None for the GPU if it does
    not start.
    """
    job = _allocate(node, *share, ("--gres=gpu:1",), run_as_slurm)
    if not job:
        return "", None
    record = run_as_slurm(["scontrol", "--oneliner", "--details", "show", "job", job]).out
    gpus = [gpu for placed in granted_nodes(record) for gpu in placed.gpus]
    return job, gpus[0] if len(gpus) == 1 else None


def _allocate(node: str, cpus: int, memory: int, more: Sequence[str], run_as_slurm: Run) -> str:
    """Return the number of a job that starts at once, or "" if it does not."""
    # Memory of 0 would mean all memory of the node.
    size = (f"--cpus-per-task={cpus}", f"--mem={max(1, memory)}", "--time=UNLIMITED")
    done = run_as_slurm(
        ["salloc", "--no-shell", "--immediate=5", f"--nodelist={node}", *size, *more]
    )
    match = re.search(r"allocation (\d+)", done.err)
    return match[1] if match and done.code == 0 else ""


def _end(jobs: Sequence[str], run_as_slurm: Run) -> None:
    """End jobs, and return when the slurmd of their nodes have reported that."""
    if not jobs:
        return
    run_as_slurm(["scancel", *jobs])
    deadline = time.monotonic() + _END_LIMIT
    while time.monotonic() < deadline:
        if not run_as_slurm(["squeue", "-h", "-t", "R,CG", "-j", ",".join(jobs)]).out.strip():
            return
        time.sleep(0.05)
