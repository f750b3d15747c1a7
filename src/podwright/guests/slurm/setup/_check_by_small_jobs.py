"""Checks of a set-up by small real jobs, one check for each promise. Each returns what is wrong, or
"".

The jobs belong to the caller and ask for as little as possible. What they hold is looked up at the
server. On a full cluster they wait like all other jobs, for a minute at most.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Final

from podwright.errors import PodwrightError
from podwright.guests.slurm.service import Site
from podwright.guests.slurm.service._licence_counts import RESERVATION_NAME
from podwright.guests.slurm.service._pods_and_licences import HET_WAIT_LICENCE
from podwright.guests.slurm.setup import _check_changed_jobs as changes
from podwright.guests.slurm.setup import _check_configuration as files
from podwright.guests.slurm.setup._check_environment import (
    NOT_TRIED,
    SLEEP_SCRIPT,
    Check,
    ServedCluster,
    is_root,
)
from podwright.guests.slurm.setup._check_partition_counts import shelf
from podwright.slurm.reader import SHOW_RESERVATIONS, read_reservations
from podwright.wire import ReadyState

_PRINT_PARTITION_COMMAND: Final = "echo $IPUOF_VIPU_API_PARTITION_ID"
#: A program that connects to its server, for bash: no other shell has /dev/tcp.
_CONNECT_SCRIPT: Final = (
    'exec 3<>"/dev/tcp/$IPUOF_VIPU_API_HOST/$IPUOF_VIPU_API_PORT" && echo answers || '
    'echo "nothing answers at $IPUOF_VIPU_API_HOST:$IPUOF_VIPU_API_PORT on $SLURMD_NODENAME"'
)

#: The same for whatever the job was given: a socket that its user may not open is no way in.
_ASK_SERVER_SCRIPT: Final = (
    'if [ -n "$PODWRIGHT_SOCKET" ] && ! [ -w "$PODWRIGHT_SOCKET" ]; then '
    'echo "$(id -un) may not open $PODWRIGHT_SOCKET on $SLURMD_NODENAME"; else '
    + _CONNECT_SCRIPT
    + "; fi"
)


def promises(
    site: Site, folder: Path, wait_s: float = 60.0, user: str = "nobody"
) -> dict[str, Check]:
    """Return what a site's mode promises, each with its check: those of files first, then those
    with jobs.

    folder: where `configure` wrote. wait_s: seconds that a small job may take. user: as whom root
    also runs a job, since much is open to root alone.
    """
    cluster = ServedCluster(site, wait_s)
    checks = {**files.promises(cluster, folder), **_job_checks(cluster)}
    if is_root() and (options := _small_request(site)):
        checks["an ordinary user's job reaches its partition"] = partial(
            _check_ordinary_user, cluster, user, options
        )
    return checks


def _small_request(site: Site) -> str:
    """Return the option by which a job asks for as little as possible; empty: by its host alone."""
    if site.mode == "host-mapping":
        return ""
    if site.mode == "static":
        return f"--gres=vipu:{min(partition.size for partition in site.partitions)}"
    return "--ipus=1"


def _check_ordinary_user(cluster: ServedCluster, user: str, option: str) -> str:
    """Check that what a job of this user is told of the server also lets him in."""
    result = cluster.run("srun", option, "-n1", "bash", "-c", _ASK_SERVER_SCRIPT, user=user)
    if not result.code and result.out.strip().endswith("answers"):
        return ""
    words = " ".join(result.text.split())
    if (
        "Invalid account" in words
        or "Access/permission denied" in words
        or "does not exist" in words
    ):
        return f"{NOT_TRIED}{user} may run no job here: name a user who may (--user): {words[:200]}"
    return words[-300:] or "nothing was said"


def _job_checks(cluster: ServedCluster) -> dict[str, Check]:
    site = cluster.site
    plain_checks: dict[str, Check] = {
        "jobs without devices run as ever": partial(_check_plain_job, cluster)
    }
    if site.mode == "host-mapping":
        host_name = site.hosts[0].name
        return {
            "a job gets the machines of its host": partial(
                _check_job_has_allocation, cluster, host_name
            )
        }
    if site.mode == "static":
        partition_sizes = {fixed_partition.size for fixed_partition in site.partitions}
        missing_size_option, smallest_size_option = (
            f"--gres=vipu:{max(partition_sizes) + 1}",
            f"--gres=vipu:{min(partition_sizes)}",
        )
        smallest_partitions = [
            fixed_partition.name
            for fixed_partition in site.partitions
            if fixed_partition.size == min(partition_sizes)
        ]
        return {
            "the counts of partitions are told to Slurm": partial(shelf, cluster),
            "a size that there is not is refused": partial(
                _check_sbatch_refused, cluster, missing_size_option, "and there is none"
            ),
            "a job's task finds its partition": partial(
                _check_job_has_partition, cluster, smallest_size_option, *smallest_partitions
            ),
            "and its server": partial(_check_server_reached, cluster, smallest_size_option),
            **plain_checks,
        }
    pod = site.pods[0]
    if site.default_ipus < 0:
        plain_checks = {
            "a job that names no devices is told what to type": partial(
                _check_sbatch_refused, cluster, "-n1", "--ipus=N"
            ),
            "jobs without devices run as ever": partial(_check_plain_job, cluster, "--ipus=0"),
        }
    elif site.default_ipus:
        default_check = partial(_check_job_has_partition, cluster, "-n1", site.shared)
        plain_checks = {"a job that names no devices gets the site's": default_check}
    count_checks: dict[str, Check] = {
        "the counts of devices are told to Slurm": partial(_check_reservation, cluster),
        "a request above the pod is refused": partial(
            _check_sbatch_refused, cluster, f"--ipus={2 * pod.devices}", "podwright: --ipus"
        ),
    }
    if site.shared:
        shared_checks: dict[str, Check] = {
            "a job and its task find their partition": partial(
                _check_job_has_partition, cluster, "--ipus=1", site.shared
            ),
            "and its server": partial(_check_server_reached, cluster, "--ipus=1"),
        }
        return {**count_checks, **shared_checks, **plain_checks}
    two_parts = ["--ipus=1", "-n1", ":", "--ipus=1", "-n1"]
    return {
        **count_checks,
        "a job and its task find their partition": partial(
            _check_job_has_partition, cluster, "--ipus=1", "slurm_"
        ),
        "and its server": partial(_check_server_reached, cluster, "--ipus=1"),
        "it is ready before the first instruction, its user's, and gone with the job": partial(
            _lives, cluster
        ),
        "each task of an array has a partition": partial(
            _check_two_partitions, cluster, "--ipus=1", "--array=1-2"
        ),
        "so has each part of a heterogeneous job": partial(
            _check_two_partitions, cluster, *two_parts
        ),
        **changes.promises(cluster),
        **plain_checks,
    }


def _check_reservation(cluster: ServedCluster) -> str:
    code, output = cluster.ask(*SHOW_RESERVATIONS, RESERVATION_NAME)
    reservations = [] if code else read_reservations(output)
    if not reservations:
        return output[:200]
    licences = reservations[0].licences
    return (
        ""
        if HET_WAIT_LICENCE in licences
        else f"{RESERVATION_NAME} hides no {HET_WAIT_LICENCE}, but {licences[:200]}"
    )


def _check_sbatch_refused(cluster: ServedCluster, sbatch_option: str, expected_text: str) -> str:
    code, output = cluster.ask("sbatch", "--test-only", sbatch_option, "--wrap=true")
    return "" if code and expected_text in output else f"it was not: {output[:200]}"


def _check_job_has_partition(cluster: ServedCluster, srun_option: str, *name_prefixes: str) -> str:
    srun_result = cluster.run("srun", srun_option, "-n1", "sh", "-c", _PRINT_PARTITION_COMMAND)
    names = srun_result.out.split()[:1] or [""]
    is_good = not srun_result.code and any(names[0].startswith(prefix) for prefix in name_prefixes)
    return "" if is_good else srun_result.text[:200] or "none in its environment"


def _check_server_reached(cluster: ServedCluster, srun_option: str) -> str:
    """Check that a program on a node reaches the server at the address that its job was given."""
    srun_result = cluster.run("srun", srun_option, "-n1", "bash", "-c", _CONNECT_SCRIPT)
    is_good = not srun_result.code and srun_result.out.strip().endswith("answers")
    return "" if is_good else srun_result.text[-300:] or "nothing was said"


def _check_job_has_allocation(cluster: ServedCluster, host_name: str) -> str:
    srun_result = cluster.run(
        "srun", "-w", host_name, "-n1", "sh", "-c", "echo $PODWRIGHT_ALLOCATION"
    )
    is_good = not srun_result.code and srun_result.out.strip().startswith("c")
    return "" if is_good else srun_result.text[:200] or "none in its environment"


def _check_plain_job(cluster: ServedCluster, *srun_options: str) -> str:
    code, output = cluster.ask("srun", "-n1", *srun_options, "true")
    return output[:200] if code else ""


def _lives(cluster: ServedCluster) -> str:
    """Check a partition against its job: it is ready when the job begins, belongs to the job's
    user, and is gone after the job ends.
    """
    srun_command = ["srun", f"--immediate={cluster.wait_s:.0f}", "--ipus=1", "-n1"]
    srun_command += ["sh", "-c", f"{_PRINT_PARTITION_COMMAND}; read end"]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(
        srun_command, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as srun_process:
        try:
            assert srun_process.stdout is not None
            partition_name = srun_process.stdout.readline().strip()
            if not partition_name:
                output = " ".join(srun_process.communicate(timeout=cluster.wait_s)[1].split())
                if "busy" in output:  # what --immediate says of a full cluster
                    return f"{NOT_TRIED}the cluster is full (--wait SECONDS)"
                return output[:200] or "none in its environment"
            with cluster.partitions() as list_partitions:
                partition_info = list_partitions().get(partition_name)
                if partition_info is None:
                    return f"the server has no partition {partition_name!r}"
                if partition_info.ready_state is not ReadyState.ACTIVE:
                    return (
                        f"{partition_name} was {partition_info.ready_state.value} when its job "
                        "began"
                    )
                if partition_info.owner_uid != os.getuid():
                    return f"{partition_name} is {partition_info.owner}'s"
                srun_process.communicate("\n", timeout=cluster.wait_s)
                if not cluster.until(lambda: partition_name not in list_partitions()):
                    return f"{partition_name} is still there {cluster.wait_s:g} s after its job"
        except subprocess.TimeoutExpired:
            return "its job did not end"
        except PodwrightError as error:
            return str(error)
        finally:
            srun_process.terminate()
    return ""


def _check_two_partitions(cluster: ServedCluster, *sbatch_options: str) -> str:
    """Check that two jobs of one submission have a partition each, at the same time."""
    exit_code, output = cluster.ask(
        "sbatch", "--parsable", "-o", "/dev/null", *sbatch_options, stdin=SLEEP_SCRIPT
    )
    if exit_code:
        return output[:200]
    first_job = output.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as list_partitions:

            def both() -> bool:
                names = {f"slurm_{job_id}" for job_id in cluster.members(first_job)}
                return len(names) == 2 and names <= list_partitions().keys()

            return (
                ""
                if cluster.until(both, first_job)
                else cluster.full(first_job)
                or f"not within {cluster.wait_s:g} s: {cluster.state(first_job)}"
            )
    except PodwrightError as error:
        return str(error)
    finally:
        cluster.ask("scancel", first_job)
