"""Which jobs live, as squeue lists them."""

from __future__ import annotations

from typing import Final

from podwright.gpu.clean._leftovers import ListedJob
from podwright.hosts import HostsError, expand
from podwright.slurm.reader import listing_format, read_listing

_WIDTHS: Final = {"job": 20, "state": 20, "user_id": 20, "node_list": 400}
#: The command whose output `read_jobs` takes.
LIST_JOBS_COMMAND: Final = (
    *("squeue", "--all", "--noheader", "--states=all", "-O"),
    listing_format(**_WIDTHS),
)
#: States of jobs that have no processes. A job in any other state, known here or not, lives.
_OVER: Final = frozenset((
    "PENDING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
    "DEADLINE", "OUT_OF_MEMORY",
))  # fmt: skip


def read_jobs(squeue_output: str, node: str) -> dict[int, ListedJob] | None:
    """The jobs in the output of LIST_JOBS_COMMAND; None if it cannot be read. node: this one."""
    jobs: dict[int, ListedJob] = {}
    for row in read_listing(squeue_output, **_WIDTHS):
        if not row["job"].isdigit() or not row["state"]:
            return None
        uid = int(row["user_id"]) if row["user_id"].isdigit() else None
        job = int(row["job"])
        lives = row["state"] not in _OVER
        # A job array has one row for all tasks that wait, with the number of one task.
        if job in jobs and jobs[job].lives:
            continue
        jobs[job] = ListedJob(job, uid, lives, _is_among(node, row["node_list"]))
    return jobs


def _is_among(node: str, node_list: str) -> bool:
    """Whether the node may be in the list. A list that was cut off may have any node."""
    if len(node_list) >= _WIDTHS["node_list"]:
        return True
    try:
        return node in expand(node_list)
    except HostsError:
        return bool(node_list)
