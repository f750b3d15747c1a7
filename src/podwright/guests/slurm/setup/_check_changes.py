"""Checks of jobs that change after their submission, or that are forged.

They cover a forged request, parts of different sizes, a job that goes back to the queue, and a job
that waits while slurmctld reads its files again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from podwright.errors import PodwrightError
from podwright.guests.slurm.setup._served_cluster import SLEEP, Check, ServedCluster, is_root
from podwright.slurm.reader import listing_format
from podwright.wire import ReadyState


def promises(cluster: ServedCluster) -> dict[str, Check]:
    """Return what native mode promises for such jobs, each with its check."""
    pod = cluster.site.pods[0]
    checks: dict[str, Check] = {
        "licences that a user asks for by name are refused": partial(
            _forged, cluster, f"{pod.block_licence(pod.orders[0])}:1", pod.licence
        )
    }
    if pod.orders[:2] == (0, 1):
        checks["parts of different sizes keep them"] = partial(_unequal, cluster)
    checks["a job that goes back to the queue has its devices again"] = partial(_requeued, cluster)
    if is_root():  # only root may have slurmctld read its files
        checks["a waiting job has its devices after scontrol reconfigure"] = partial(
            _reconfigured, cluster
        )
    return checks


def _forged(cluster: ServedCluster, block: str, licence: str) -> str:
    """Check that licences typed with -L gain nothing, alone or beside a request. Only root may type
    any.
    """
    user = "nobody" if is_root() else None
    for words in (["podwright_job:1"], [block], [f"{licence};{block}"], [block, "--ipus=1"]):
        code, output = cluster.ask("sbatch", "--test-only", "--wrap=true", "-L", *words, user=user)
        if not code or "podwright" not in output:
            return f"-L '{' '.join(words)}' was not refused: {output[:200]}"
    return ""


def _unequal(cluster: ServedCluster) -> str:
    """Check that devices of one part are never counted for another."""
    parts = ["--ipus=1", "-n1", ":", "--ipus=2", "-n1"]
    code, output = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", *parts, stdin=SLEEP)
    if code:
        return output[:200]
    first = output.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as partitions:
            sizes: list[int] = []

            def both() -> bool:
                names = {f"slurm_{job}" for job in cluster.members(first)}
                sizes[:] = sorted(info.size for name, info in partitions().items() if name in names)
                return len(sizes) == 2

            if not cluster.until(both, first):
                return cluster.late(first)
            return "" if sizes == [1, 2] else f"parts of 1 and 2 devices got {sizes}"
    except PodwrightError as error:
        return str(error)
    finally:
        cluster.ask("scancel", first)


def _requeued(cluster: ServedCluster) -> str:
    def back(job: str) -> str:
        code, output = cluster.ask("scontrol", "requeue", job)
        if code:
            return output[:200]
        state = ["squeue", "-h", "-j", job, "-O", listing_format(state=20)]
        if not cluster.until(lambda: cluster.ask(*state)[1].strip() == "PENDING"):
            return f"it is not back in the queue: {cluster.state(job)}"
        # A job that starts in the second in which it last ended fails: the node takes its
        # credential for the revoked one. Slurm itself waits for two minutes, so that this is over.
        time.sleep(1.5)
        code, output = cluster.ask("scontrol", "update", f"jobid={job}", "StartTime=now")
        return output[:200] if code else ""

    return _changed(cluster, back, restarts=1)


def _reconfigured(cluster: ServedCluster) -> str:
    def read(job: str) -> str:
        code, output = cluster.ask("scontrol", "hold", job)
        if not code:
            code, output = cluster.ask("scontrol", "reconfigure")
        if not code:
            code, output = cluster.ask("scontrol", "release", job)
        return output[:200] if code else ""

    return _changed(cluster, read, hold=True)


def _changed(
    cluster: ServedCluster, change: Callable[[str], str], *, restarts: int = 0, hold: bool = False
) -> str:
    """Check that a job to which something happens runs in the end, with its own partition, ready.

    change: makes it happen to the job of this number, and returns what went wrong. hold: the job
    waits until then. restarts: how often the job has been restarted in the end.
    """
    options = ["--ipus=1", "-n1", "--requeue", *(["--hold"] if hold else [])]
    script = "#!/bin/sh\nsleep 600\n"  # longer than any check waits
    code, output = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", *options, stdin=script)
    if code:
        return output[:200]
    job = output.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as partitions:

            def runs(times: int) -> bool:
                columns = listing_format(state=20, restarts=20)
                columns_shown = cluster.ask("squeue", "-h", "-j", job, "-O", columns)[1].split()
                info = partitions().get(f"slurm_{job}")
                ready = info is not None and info.ready_state is ReadyState.ACTIVE
                return ready and columns_shown == ["RUNNING", str(times)]

            if not hold and not cluster.until(lambda: runs(0), job):
                return cluster.late(job)
            if problem := change(job):
                return problem
            if not cluster.until(lambda: runs(restarts), job):
                return f"it did not run again with its partition: {cluster.state(job)}"
            return ""
    except PodwrightError as error:
        return str(error)
    finally:
        cluster.ask("scancel", job)
