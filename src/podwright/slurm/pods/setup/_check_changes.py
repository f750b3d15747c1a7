"""Proofs of what must hold when a job is not as it was submitted, or not for long.

A forged request, parts of different sizes, a job that goes back to the queue, and one that waits
while slurmctld reads its files again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from podwright.errors import PodwrightError
from podwright.slurm.pods.setup._check_cluster import SLEEP, Check, ServedCluster, is_root
from podwright.wire import ReadyState


def promises(cluster: ServedCluster) -> dict[str, Check]:
    """What native mode promises of such jobs, and how to see whether it is so."""
    pod = cluster.site.pods[0]
    found: dict[str, Check] = {
        "licences that a user asks for by name are refused": partial(
            _forged, cluster, f"{pod.block_licence(pod.orders[0])}:1", pod.licence
        )
    }
    if pod.orders[:2] == (0, 1):
        found["parts of different sizes keep them"] = partial(_unequal, cluster)
    found["a job that goes back to the queue has its devices again"] = partial(_requeued, cluster)
    if is_root():  # nobody else may have slurmctld read its files
        found["a waiting job has its devices after scontrol reconfigure"] = partial(
            _reconfigured, cluster
        )
    return found


def _forged(cluster: ServedCluster, block: str, licence: str) -> str:
    """What is typed with -L gains nothing: alone, or beside a request. Root may type anything."""
    user = "nobody" if is_root() else None
    for words in (["podwright_job:1"], [block], [f"{licence};{block}"], [block, "--ipus=1"]):
        code, said = cluster.ask("sbatch", "--test-only", "--wrap=true", "-L", *words, user=user)
        if not code or "podwright" not in said:
            return f"-L '{' '.join(words)}' was not refused: {said[:200]}"
    return ""


def _unequal(cluster: ServedCluster) -> str:
    """Devices of one part are never counted for another."""
    parts = ["--ipus=1", "-n1", ":", "--ipus=2", "-n1"]
    code, said = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", *parts, stdin=SLEEP)
    if code:
        return said[:200]
    first = said.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as partitions:
            sizes: list[int] = []

            def both() -> bool:
                names = {f"slurm_{job}" for job in cluster.members(first)}
                sizes[:] = sorted(one.size for name, one in partitions().items() if name in names)
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
        code, said = cluster.ask("scontrol", "requeue", job)
        if code:
            return said[:200]
        state = ["squeue", "-h", "-j", job, "-O", "State:20"]
        if not cluster.until(lambda: cluster.ask(*state)[1].strip() == "PENDING"):
            return f"it is not back in the queue: {cluster.state(job)}"
        # A start in the second of its last end fails: the node takes its credential for the
        # revoked one. Left alone it waits for two minutes, until that is over.
        time.sleep(1.5)
        code, said = cluster.ask("scontrol", "update", f"jobid={job}", "StartTime=now")
        return said[:200] if code else ""

    return _changed(cluster, back, restarts=1)


def _reconfigured(cluster: ServedCluster) -> str:
    def read(job: str) -> str:
        code, said = cluster.ask("scontrol", "hold", job)
        if not code:
            code, said = cluster.ask("scontrol", "reconfigure")
        if not code:
            code, said = cluster.ask("scontrol", "release", job)
        return said[:200] if code else ""

    return _changed(cluster, read, held=True)


def _changed(
    cluster: ServedCluster, change: Callable[[str], str], *, restarts: int = 0, held: bool = False
) -> str:
    """A job to which something happens runs in the end, with its own partition, ready.

    change: what happens, by the job's number; answers what went wrong. held: the job waits until
    then. restarts: how often the job has been started anew, in the end.
    """
    options = ["--ipus=1", "-n1", "--requeue", *(["--hold"] if held else [])]
    script = "#!/bin/sh\nsleep 600\n"  # longer than anybody looks
    code, said = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", *options, stdin=script)
    if code:
        return said[:200]
    job = said.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as partitions:

            def runs(times: int) -> bool:
                shown = cluster.ask("squeue", "-h", "-j", job, "-O", "State:20,RestartCnt:20")[
                    1
                ].split()
                found = partitions().get(f"slurm_{job}")
                ready = found is not None and found.ready_state is ReadyState.ACTIVE
                return ready and shown == ["RUNNING", str(times)]

            if not held and not cluster.until(lambda: runs(0), job):
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
