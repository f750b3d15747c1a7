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
from podwright.guests.slurm.service._pods import HET_WAIT_LICENCE
from podwright.guests.slurm.service._sync import RESERVATION_NAME
from podwright.guests.slurm.setup import _check_changes as changes
from podwright.guests.slurm.setup import _check_files as files
from podwright.guests.slurm.setup._check_static import shelf
from podwright.guests.slurm.setup._served_cluster import SLEEP, Check, ServedCluster
from podwright.slurm.reader import SHOW_RESERVATIONS, read_reservations
from podwright.wire import ReadyState

_NAME: Final = "echo $IPUOF_VIPU_API_PARTITION_ID"
#: A program that connects to its server, for bash: no other shell has /dev/tcp.
_KNOCK: Final = (
    'exec 3<>"/dev/tcp/$IPUOF_VIPU_API_HOST/$IPUOF_VIPU_API_PORT" && echo answers || '
    'echo "nothing answers at $IPUOF_VIPU_API_HOST:$IPUOF_VIPU_API_PORT on $SLURMD_NODENAME"'
)


def promises(site: Site, folder: Path, wait_s: float = 60.0) -> dict[str, Check]:
    """Return what a site's mode promises, each with its check: those of files first, then those
    with jobs.

    folder: where `configure` wrote. wait_s: seconds that a small job may take.
    """
    cluster = ServedCluster(site, wait_s)
    return {**files.promises(cluster, folder), **_jobs(cluster)}


def _jobs(cluster: ServedCluster) -> dict[str, Check]:
    site = cluster.site
    plain: dict[str, Check] = {"jobs without devices run as ever": partial(_plain, cluster)}
    if site.mode == "host-mapping":
        host = site.hosts[0].name
        return {"a job gets the machines of its host": partial(_allocated, cluster, host)}
    if site.mode == "static":
        sizes = {fixed.size for fixed in site.partitions}
        none, options = f"--gres=vipu:{max(sizes) + 1}", f"--gres=vipu:{min(sizes)}"
        names = [fixed.name for fixed in site.partitions if fixed.size == min(sizes)]
        return {
            "the counts of partitions are told to Slurm": partial(shelf, cluster),
            "a size that there is not is refused": partial(
                _refused, cluster, none, "and there is none"
            ),
            "a job's task finds its partition": partial(_runs, cluster, options, *names),
            "and its server": partial(_server, cluster, options),
            **plain,
        }
    pod = site.pods[0]
    if site.default_ipus < 0:
        plain = {
            "a job that names no devices is told what to type": partial(
                _refused, cluster, "-n1", "--ipus=N"
            ),
            "jobs without devices run as ever": partial(_plain, cluster, "--ipus=0"),
        }
    elif site.default_ipus:
        gets = partial(_runs, cluster, "-n1", site.shared)
        plain = {"a job that names no devices gets the site's": gets}
    counted: dict[str, Check] = {
        "the counts of devices are told to Slurm": partial(_reservation, cluster),
        "a request above the pod is refused": partial(
            _refused, cluster, f"--ipus={2 * pod.devices}", "podwright: --ipus"
        ),
    }
    if site.shared:
        finds: dict[str, Check] = {
            "a job and its task find their partition": partial(
                _runs, cluster, "--ipus=1", site.shared
            ),
            "and its server": partial(_server, cluster, "--ipus=1"),
        }
        return {**counted, **finds, **plain}
    two = ["--ipus=1", "-n1", ":", "--ipus=1", "-n1"]
    return {
        **counted,
        "a job and its task find their partition": partial(_runs, cluster, "--ipus=1", "slurm_"),
        "and its server": partial(_server, cluster, "--ipus=1"),
        "it is ready before the first instruction, its user's, and gone with the job": partial(
            _lives, cluster
        ),
        "each task of an array has a partition": partial(_each, cluster, "--ipus=1", "--array=1-2"),
        "so has each part of a heterogeneous job": partial(_each, cluster, *two),
        **changes.promises(cluster),
        **plain,
    }


def _reservation(cluster: ServedCluster) -> str:
    code, output = cluster.ask(*SHOW_RESERVATIONS, RESERVATION_NAME)
    reservations = [] if code else read_reservations(output)
    if not reservations:
        return output[:200]
    hidden = reservations[0].licences
    return (
        ""
        if HET_WAIT_LICENCE in hidden
        else f"{RESERVATION_NAME} hides no {HET_WAIT_LICENCE}, but {hidden[:200]}"
    )


def _refused(cluster: ServedCluster, option: str, expected: str) -> str:
    code, output = cluster.ask("sbatch", "--test-only", option, "--wrap=true")
    return "" if code and expected in output else f"it was not: {output[:200]}"


def _runs(cluster: ServedCluster, option: str, *names: str) -> str:
    done = cluster.run("srun", option, "-n1", "sh", "-c", _NAME)
    printed = done.out.split()[:1] or [""]
    good = not done.code and any(printed[0].startswith(name) for name in names)
    return "" if good else done.text[:200] or "none in its environment"


def _server(cluster: ServedCluster, option: str) -> str:
    """Check that a program on a node reaches the server at the address that its job was given."""
    done = cluster.run("srun", option, "-n1", "bash", "-c", _KNOCK)
    good = not done.code and done.out.strip().endswith("answers")
    return "" if good else done.text[-300:] or "nothing was said"


def _allocated(cluster: ServedCluster, host: str) -> str:
    done = cluster.run("srun", "-w", host, "-n1", "sh", "-c", "echo $PODWRIGHT_ALLOCATION")
    good = not done.code and done.out.strip().startswith("c")
    return "" if good else done.text[:200] or "none in its environment"


def _plain(cluster: ServedCluster, *options: str) -> str:
    code, output = cluster.ask("srun", "-n1", *options, "true")
    return output[:200] if code else ""


def _lives(cluster: ServedCluster) -> str:
    """Check a partition against its job: it is ready when the job begins, belongs to the job's
    user, and is gone after the job ends.
    """
    command = ["srun", f"--immediate={cluster.wait_s:.0f}", "--ipus=1", "-n1"]
    command += ["sh", "-c", f"{_NAME}; read end"]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as job:
        try:
            assert job.stdout is not None
            name = job.stdout.readline().strip()
            if not name:
                output = " ".join(job.communicate(timeout=cluster.wait_s)[1].split())
                return output[:200] or "none in its environment"
            with cluster.partitions() as partitions:
                info = partitions().get(name)
                if info is None:
                    return f"the server has no partition {name!r}"
                if info.ready_state is not ReadyState.ACTIVE:
                    return f"{name} was {info.ready_state.value} when its job began"
                if info.owner_uid != os.getuid():
                    return f"{name} is {info.owner}'s"
                job.communicate("\n", timeout=cluster.wait_s)
                if not cluster.until(lambda: name not in partitions()):
                    return f"{name} is still there {cluster.wait_s:g} s after its job"
        except subprocess.TimeoutExpired:
            return "its job did not end"
        except PodwrightError as error:
            return str(error)
        finally:
            job.terminate()
    return ""


def _each(cluster: ServedCluster, *options: str) -> str:
    """Check that two jobs of one submission have a partition each, at the same time."""
    code, output = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", *options, stdin=SLEEP)
    if code:
        return output[:200]
    first = output.partition(";")[0].split()[0]
    try:
        with cluster.partitions() as partitions:

            def both() -> bool:
                names = {f"slurm_{job}" for job in cluster.members(first)}
                return len(names) == 2 and names <= partitions().keys()

            return (
                ""
                if cluster.until(both, first)
                else f"not within {cluster.wait_s:g} s: {cluster.state(first)}"
            )
    except PodwrightError as error:
        return str(error)
    finally:
        cluster.ask("scancel", first)
