"""Trivial jobs for a lab's Slurm, and how long they take, with what is ours and without."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.outer.lab import ALICE, LabError, poll
from tests.outer.slurm.native import NativeLab


@contextmanager
def undone(lab: NativeLab) -> Iterator[None]:
    """Nothing of ours is in Slurm meanwhile."""
    lab.configure("--undo")
    restart(lab)
    yield
    lab.configure("--write")
    restart(lab)


@contextmanager
def true_hooks(lab: NativeLab) -> Iterator[None]:
    """Nothing of ours, but `/bin/true` where our hooks would be: what Slurm spends on any hook."""
    lab.configure("--undo")
    hooks = dict.fromkeys(("PrologSlurmctld", "EpilogSlurmctld"), "/bin/true")
    lab.settings.update(hooks)
    lab.write_conf()
    restart(lab)
    yield
    for name in hooks:
        del lab.settings[name]
    lab.write_conf()
    lab.configure("--write")
    restart(lab)


def restart(lab: NativeLab) -> None:
    """A slurmctld that reads its settings anew, and has no jobs."""
    lab.kill_daemon("slurmctld")
    lab.start_daemon("slurmctld", clean=True)
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    lab.wait_for_nodes()


def loose(lab: NativeLab, count: int, options: Sequence[str]) -> None:
    """One by one from a single shell, as a user's loop does."""
    lab.write("out/one.sh", "#!/bin/sh\ntrue\n")
    one = f"sbatch -Q -n1 -o /dev/null {' '.join(options)} one.sh >&2 || exit 1"
    line = f"i=0; while [ $i -lt {count} ]; do {one}; i=$((i+1)); done"
    done = lab.run("sh", "-c", line, user=ALICE, timeout=300)
    if done.returncode:
        raise LabError(done.stderr[-1000:])


def array(lab: NativeLab, count: int, options: Sequence[str]) -> None:
    """So many tasks of one array."""
    lab.batch("true", "-n1", "-o", "/dev/null", f"--array=1-{count}", *options)


class Timed(NamedTuple):
    """What a load took. seconds: from the first submission to the last end. hops: milliseconds of
    processor time a job, by the process that spent them."""

    seconds: float
    hops: dict[str, float]


def timed(lab: NativeLab, count: int, submit: Callable[[], None]) -> Timed:
    """Raises where a job did not complete."""
    known = _states(lab).count("COMPLETED")
    spent_before, start, submitted = _spent(lab), time.perf_counter(), _children_s()
    submit()
    sbatch_s = _children_s() - submitted
    poll("the last end", lambda: _all_over(lab), seconds=300, every=0.1)
    took = time.perf_counter() - start
    done = _states(lab).count("COMPLETED") - known
    if done != count:
        raise LabError(f"{done} of {count} jobs completed")
    lab.wait_free()
    spent = {hop: seconds - spent_before[hop] for hop, seconds in _spent(lab).items()}
    hops = {"sbatch": sbatch_s, **spent}
    return Timed(took, {hop: 1000 * seconds / count for hop, seconds in hops.items()})


def _spent(lab: NativeLab) -> dict[str, float]:
    """Seconds of processor time of the daemons, and of what they started and waited for.

    slurmctld has job_submit and the answers to all commands, slurmscriptd forks the hooks. The
    service has HTTP and its own work, and runs Slurm's commands. The server has its commits.
    """
    slurmctld = lab.daemon_pid("slurmctld")
    (scriptd,) = map(int, Path(f"/proc/{slurmctld}/task/{slurmctld}/children").read_text().split())
    own = {"slurmctld": slurmctld, "fork": scriptd, "service": lab.pid("service")}
    own["server"] = lab.pid("server")
    spent = {hop: _processor_s(pid)[0] for hop, pid in own.items()}
    spent["hooks"] = _processor_s(scriptd)[1]
    spent["commands"] = _processor_s(own["service"])[1]
    spent["slurmd"] = sum(sum(_processor_s(lab.daemon_pid(name))) for name in lab.nodes)
    return spent


def _processor_s(pid: int) -> tuple[float, float]:
    """Of a process itself, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, child_user, child_system = (int(field) for field in fields[11:15])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + system) / ticks, (child_user + child_system) / ticks


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _all_over(lab: NativeLab) -> bool:
    return not lab.ok("squeue", "-h", "-o", "%T").split()


def _states(lab: NativeLab) -> list[str]:
    return lab.ok("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%T").split()
