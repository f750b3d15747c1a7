"""Small real jobs that prove a set-up, one for each promise. Each check says what is wrong, or "".

Jobs are the caller's own and ask for as little as there is; what they hold is looked up at the
server, not believed. On a full cluster they wait like all others, for a minute at most.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

from podwright.errors import PodwrightError
from podwright.slurm.pods.service import Site
from podwright.slurm.pods.setup import _prove_changes as changes
from podwright.slurm.pods.setup._asking import SLEEP, WAIT_S, ask, members, there, until
from podwright.wire import ReadyState

_NAME = "echo $IPUOF_VIPU_API_PARTITION_ID"
Check = Callable[[], str]


def promises(site: Site) -> dict[str, Check]:
    """What a site's mode promises, and how to see whether it is so."""
    plain: dict[str, Check] = {"jobs without devices run as ever": _plain}
    if site.mode == "host-mapping":
        host = site.hosts[0].name
        return {"a job gets the machines of its host": partial(_allocated, host)}
    if site.mode == "static":
        sizes = {one.size for one in site.partitions}
        none, some = f"--gres=vipu:{max(sizes) + 1}", f"--gres=vipu:{min(sizes)}"
        names = [one.name for one in site.partitions if one.size == min(sizes)]
        return {
            "the counts of partitions are told to Slurm": partial(
                _reservation, "ReservationName=podwright"
            ),
            "a size that there is not is refused": partial(_refused, none, "and there is none"),
            "a job's task finds its partition": partial(_runs, some, *names),
            **plain,
        }
    pod = site.pods[0]
    if site.unsaid < 0:
        plain = {
            "a job that names no devices is told what to type": partial(
                _refused, "-n1", "--ipus=N"
            ),
            "jobs without devices run as ever": partial(_plain, "--ipus=0"),
        }
    elif site.unsaid:
        plain = {"a job that names no devices gets the site's": partial(_runs, "-n1", site.shared)}
    counted: dict[str, Check] = {
        "the counts of devices are told to Slurm": partial(_reservation, "podwright_het_wait"),
        "a request above the pod is refused": partial(
            _refused, f"--ipus={2 * pod.devices}", "podwright: --ipus"
        ),
    }
    if site.shared:
        finds = {"a job and its task find their partition": partial(_runs, "--ipus=1", site.shared)}
        return {**counted, **finds, **plain}
    two = ["--ipus=1", "-n1", ":", "--ipus=1", "-n1"]
    return {
        **counted,
        "a job and its task find their partition": partial(_runs, "--ipus=1", "slurm_"),
        "it is ready before the first instruction, its user's, and gone with the job": partial(
            _lives, site
        ),
        "each task of an array has a partition": partial(_each, site, "--ipus=1", "--array=1-2"),
        "so has each part of a heterogeneous job": partial(_each, site, *two),
        **changes.promises(site),
        **plain,
    }


def _reservation(licence: str) -> str:
    code, said = ask("scontrol", "show", "reservation", "podwright")
    return said[:200] if code or licence not in said else ""


def _refused(option: str, why: str) -> str:
    code, said = ask("sbatch", "--test-only", option, "--wrap=true")
    return "" if code and why in said else f"it was not: {said[:200]}"


def _runs(option: str, *names: str) -> str:
    code, said = ask("srun", option, "-n1", "sh", "-c", _NAME)
    found = said.split()[:1] or [""]
    good = not code and any(found[0].startswith(name) for name in names)
    return "" if good else said[:200] or "none in its environment"


def _allocated(host: str) -> str:
    code, said = ask("srun", "-w", host, "-n1", "sh", "-c", "echo $PODWRIGHT_ALLOCATION")
    return "" if not code and said.startswith("c") else said[:200] or "none in its environment"


def _plain(*options: str) -> str:
    code, said = ask("srun", "-n1", *options, "true")
    return said[:200] if code else ""


def _lives(site: Site) -> str:
    """A partition's life beside that of its job, which ends when it is told to."""
    command = ["srun", f"--immediate={WAIT_S:.0f}", "--ipus=1", "-n1"]
    command += ["sh", "-c", f"{_NAME}; read end"]
    pipe: Any = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as job:
        try:
            assert job.stdout is not None
            name = job.stdout.readline().strip()
            if not name:
                said = " ".join(job.communicate(timeout=WAIT_S)[1].split())
                return said[:200] or "none in its environment"
            with there(site) as partitions:
                found = partitions().get(name)
                if found is None:
                    return f"the server has no partition {name!r}"
                if found.ready_state is not ReadyState.ACTIVE:
                    return f"{name} was {found.ready_state.value} when its job began"
                if found.owner_uid != os.getuid():
                    return f"{name} is {found.owner}'s"
                job.communicate("\n", timeout=WAIT_S)
                if not until(lambda: name not in partitions()):
                    return f"{name} is still there {WAIT_S:g} s after its job"
        except subprocess.TimeoutExpired:
            return "its job did not end"
        except PodwrightError as error:
            return str(error)
        finally:
            job.terminate()
    return ""


def _each(site: Site, *options: str) -> str:
    """Two jobs of one submission: a partition each, at the same time."""
    code, said = ask("sbatch", "--parsable", "-o", "/dev/null", *options, stdin=SLEEP)
    if code:
        return said[:200]
    first = said.partition(";")[0].split()[0]
    try:
        with there(site) as partitions:

            def both() -> bool:
                names = {f"slurm_{job}" for job in members(first)}
                return len(names) == 2 and names <= partitions().keys()

            return "" if until(both) else f"not within {WAIT_S:g} s: {ask('squeue')[1][:200]}"
    except PodwrightError as error:
        return str(error)
    finally:
        ask("scancel", first)
