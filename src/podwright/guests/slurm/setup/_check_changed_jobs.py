"""Checks of jobs that change after their submission, or that are forged.

They cover a forged request, parts of different sizes, a job that goes back to the queue, and a job
that waits while slurmctld reads its files again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from podwright.errors import PodwrightError
from podwright.guests.slurm.setup._check_environment import (
    SLEEP_SCRIPT,
    Check,
    ServedCluster,
    is_root,
)
from podwright.slurm.reader import listing_format
from podwright.wire import ReadyState


def promises(cluster: ServedCluster) -> dict[str, Check]:
    """Return what native mode promises for such jobs, each with its check."""
    pod = cluster.site.pods[0]
    checks: dict[str, Check] = {
        "licences that a user asks for by name are refused": partial(
            _check_forged, cluster, f"{pod.block_licence(pod.orders[0])}:1", pod.licence
        )
    }
    if pod.orders[:2] == (0, 1):
        checks["parts of different sizes keep them"] = partial(_check_unequal_parts, cluster)
    checks["a job that goes back to the queue has its devices again"] = partial(
        _check_requeued, cluster
    )
    if is_root():  # only root may have slurmctld read its files
        checks["a waiting job has its devices after scontrol reconfigure"] = partial(
            _check_reconfigured, cluster
        )
    return checks


def _check_forged(cluster: ServedCluster, block_licence: str, licence: str) -> str:
    """Check that licences typed with -L gain nothing, alone or beside a request. Only root may type
    any.
    """
    run_as = "nobody" if is_root() else None
    for licence_options in (
        ["podwright_job:1"],
        [block_licence],
        [f"{licence};{block_licence}"],
        [block_licence, "--ipus=1"],
    ):
        exit_code, output = cluster.ask(
            "sbatch", "--test-only", "--wrap=true", "-L", *licence_options, user=run_as
        )
        if not exit_code or "podwright" not in output:
            return f"-L '{' '.join(licence_options)}' was not refused: {output[:200]}"
    return ""


def _check_unequal_parts(cluster: ServedCluster) -> str:
    """Check that devices of one part are never counted for another."""
    job_parts = ["--ipus=1", "-n1", ":", "--ipus=2", "-n1"]
    exit_code, output = cluster.ask(
        "sbatch", "--parsable", "-o", "/dev/null", *job_parts, stdin=SLEEP_SCRIPT
    )
    if exit_code:
        return output[:200]
    first_job = output.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as list_partitions:
            partition_sizes: list[int] = []

            def both() -> bool:
                partition_names = {f"slurm_{job_id}" for job_id in cluster.members(first_job)}
                partition_sizes[:] = sorted(
                    info.size for name, info in list_partitions().items() if name in partition_names
                )
                return len(partition_sizes) == 2

            if not cluster.until(both, first_job):
                return cluster.late(first_job)
            return (
                ""
                if partition_sizes == [1, 2]
                else f"parts of 1 and 2 devices got {partition_sizes}"
            )
    except PodwrightError as error:
        return str(error)
    finally:
        cluster.ask("scancel", first_job)


def _check_requeued(cluster: ServedCluster) -> str:
    def back(job_id: str) -> str:
        code, output = cluster.ask("scontrol", "requeue", job_id)
        if code:
            return output[:200]
        command = ["squeue", "-h", "-j", job_id, "-O", listing_format(state=20)]
        if not cluster.until(lambda: cluster.ask(*command)[1].strip() == "PENDING"):
            return f"it is not back in the queue: {cluster.state(job_id)}"
        # A job that starts in the second in which it last ended fails: the node takes its
        # credential for the revoked one. Slurm itself waits for two minutes, so that this is over.
        time.sleep(1.5)
        code, output = cluster.ask("scontrol", "update", f"jobid={job_id}", "StartTime=now")
        return output[:200] if code else ""

    return _check_changed_job(cluster, back, restarts=1)


def _check_reconfigured(cluster: ServedCluster) -> str:
    def read(job_id: str) -> str:
        code, output = cluster.ask("scontrol", "hold", job_id)
        if not code:
            code, output = cluster.ask("scontrol", "reconfigure")
        if not code:
            code, output = cluster.ask("scontrol", "release", job_id)
        return output[:200] if code else ""

    return _check_changed_job(cluster, read, hold=True)


def _check_changed_job(
    cluster: ServedCluster,
    change_job: Callable[[str], str],
    *,
    restarts: int = 0,
    hold: bool = False,
) -> str:
    """Check that a job to which something happens runs in the end, with its own partition, ready.

    change_job: makes it happen to the job of this number, and returns what went wrong. hold: the
    job waits until then. restarts: how often the job has been restarted in the end.
    """
    sbatch_options = ["--ipus=1", "-n1", "--requeue", *(["--hold"] if hold else [])]
    script = "#!/bin/sh\nsleep 600\n"  # longer than any check waits
    exit_code, output = cluster.ask(
        "sbatch", "--parsable", "-o", "/dev/null", *sbatch_options, stdin=script
    )
    if exit_code:
        return output[:200]
    job_id = output.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as list_partitions:

            def runs(expected_restarts: int) -> bool:
                columns = listing_format(state=20, restarts=20)
                values = cluster.ask("squeue", "-h", "-j", job_id, "-O", columns)[1].split()
                info = list_partitions().get(f"slurm_{job_id}")
                is_ready = info is not None and info.ready_state is ReadyState.ACTIVE
                return is_ready and values == ["RUNNING", str(expected_restarts)]

            if not hold and not cluster.until(lambda: runs(0), job_id):
                return cluster.late(job_id)
            if problem := change_job(job_id):
                return problem
            if not cluster.until(lambda: runs(restarts), job_id):
                return f"it did not run again with its partition: {cluster.state(job_id)}"
            return ""
    except PodwrightError as error:
        return str(error)
    finally:
        cluster.ask("scancel", job_id)
