"""Trivial jobs for a lab's Slurm, and how long they take, with what is ours and without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

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


def timed(lab: NativeLab, count: int, submit: Callable[[], None]) -> float:
    """Seconds from the first submission to the last end. Raises where one did not complete."""
    known = _states(lab).count("COMPLETED")
    start = time.perf_counter()
    submit()
    poll("the last end", lambda: _all_over(lab), seconds=300, every=0.1)
    took = time.perf_counter() - start
    done = _states(lab).count("COMPLETED") - known
    if done != count:
        raise LabError(f"{done} of {count} jobs completed")
    return took


def _all_over(lab: NativeLab) -> bool:
    return not lab.ok("squeue", "-h", "-o", "%T").split()


def _states(lab: NativeLab) -> list[str]:
    return lab.ok("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%T").split()
