"""Small real jobs that prove a set-up, one for each promise. Each check says what is wrong, or "".

Jobs are the caller's own and ask for as little as there is; what they hold is looked up at the
server, not believed. On a full cluster they wait like all others, for a minute at most.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Final

from podwright.errors import PodwrightError
from podwright.slurm.pods.service import Site
from podwright.slurm.pods.service._pods import HET_WAIT
from podwright.slurm.pods.setup import _check_changes as changes
from podwright.slurm.pods.setup import _check_files as files
from podwright.slurm.pods.setup._check_cluster import SLEEP, Check, ServedCluster
from podwright.slurm.pods.setup._check_static import shelf
from podwright.wire import ReadyState

_NAME: Final = "echo $IPUOF_VIPU_API_PARTITION_ID"
#: What a program does that looks for its server. bash, as no other shell has it.
_KNOCK: Final = (
    'exec 3<>"/dev/tcp/$IPUOF_VIPU_API_HOST/$IPUOF_VIPU_API_PORT" && echo answers || '
    'echo "nothing answers at $IPUOF_VIPU_API_HOST:$IPUOF_VIPU_API_PORT on $SLURMD_NODENAME"'
)


def promises(site: Site, folder: Path, wait_s: float = 60.0) -> dict[str, Check]:
    """What a site's mode promises, and how to see whether it is so: files first, then jobs.

    folder: where `configure` wrote. wait_s: how long a small job may take.
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
        sizes = {one.size for one in site.partitions}
        none, some = f"--gres=vipu:{max(sizes) + 1}", f"--gres=vipu:{min(sizes)}"
        names = [one.name for one in site.partitions if one.size == min(sizes)]
        return {
            "the counts of partitions are told to Slurm": partial(shelf, cluster),
            "a size that there is not is refused": partial(
                _refused, cluster, none, "and there is none"
            ),
            "a job's task finds its partition": partial(_runs, cluster, some, *names),
            "and its server": partial(_server, cluster, some),
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
    code, said = cluster.ask("scontrol", "show", "reservation", "podwright")
    return said[:200] if code or HET_WAIT not in said else ""


def _refused(cluster: ServedCluster, option: str, why: str) -> str:
    code, said = cluster.ask("sbatch", "--test-only", option, "--wrap=true")
    return "" if code and why in said else f"it was not: {said[:200]}"


def _runs(cluster: ServedCluster, option: str, *names: str) -> str:
    code, said = cluster.ask("srun", option, "-n1", "sh", "-c", _NAME)
    found = said.split()[:1] or [""]
    good = not code and any(found[0].startswith(name) for name in names)
    return "" if good else said[:200] or "none in its environment"


def _server(cluster: ServedCluster, option: str) -> str:
    """A program on a node reaches the server where its job was told."""
    code, said = cluster.ask("srun", option, "-n1", "bash", "-c", _KNOCK)
    return "" if not code and said.endswith("answers") else said[-300:] or "nothing was said"


def _allocated(cluster: ServedCluster, host: str) -> str:
    code, said = cluster.ask("srun", "-w", host, "-n1", "sh", "-c", "echo $PODWRIGHT_ALLOCATION")
    return "" if not code and said.startswith("c") else said[:200] or "none in its environment"


def _plain(cluster: ServedCluster, *options: str) -> str:
    code, said = cluster.ask("srun", "-n1", *options, "true")
    return said[:200] if code else ""


def _lives(cluster: ServedCluster) -> str:
    """A partition's life beside that of its job, which ends when it is told to."""
    command = ["srun", f"--immediate={cluster.wait_s:.0f}", "--ipus=1", "-n1"]
    command += ["sh", "-c", f"{_NAME}; read end"]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as job:
        try:
            assert job.stdout is not None
            name = job.stdout.readline().strip()
            if not name:
                said = " ".join(job.communicate(timeout=cluster.wait_s)[1].split())
                return said[:200] or "none in its environment"
            with cluster.partitions() as partitions:
                found = partitions().get(name)
                if found is None:
                    return f"the server has no partition {name!r}"
                if found.ready_state is not ReadyState.ACTIVE:
                    return f"{name} was {found.ready_state.value} when its job began"
                if found.owner_uid != os.getuid():
                    return f"{name} is {found.owner}'s"
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
    """Two jobs of one submission: a partition each, at the same time."""
    code, said = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", *options, stdin=SLEEP)
    if code:
        return said[:200]
    first = said.partition(";")[0].split()[0]
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
