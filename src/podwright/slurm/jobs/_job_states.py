"""The states of this user's jobs, asked for all of them at once and not too often.

slurmctld answers everybody on the cluster: many jobs cost it one question, and the longer they
take, the rarer it is asked.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from podwright.errors import Unavailable
from podwright.slurm.jobs._job_commands import Commands

#: Seconds between two questions: at first, and after a while.
SOONEST, LATEST = 0.5, 15.0
UNKNOWN, FORGOTTEN = "UNKNOWN", "FORGOTTEN"
#: Those after which nothing happens to a job any more (squeue's manual, JOB STATE CODES).
OVER = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)


class States:
    """What squeue said last. Any thread may ask."""

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._clock = commands, clock
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._asked, self._pause = float("-inf"), SOONEST
        self._answered = False

    def state(self, job: str) -> str | None:
        """The state of a job, in Slurm's word; FORGOTTEN where squeue does not list it (any more).

        None: nobody answered yet.
        """
        with self._lock:
            now = self._clock()
            if self._known.get(job) is None or now - self._asked >= self._pause:
                self._ask(now)
            return self._known.get(job, FORGOTTEN if self._answered else None)

    def soon(self) -> None:
        """Something was changed: the next question is not put off."""
        with self._lock:
            self._pause, self._asked = SOONEST, float("-inf")

    def _ask(self, now: float) -> None:
        said = self._commands.run(["squeue", "--me", "--noheader", "-t", "all", "-o", "%A|%T"])
        self._asked = now
        if said.code:
            return  # slurmctld is away for a while: what it said last stands
        self._answered = True
        before, self._known = self._known, {}
        for line in said.out.splitlines():
            job, _, state = line.strip().partition("|")
            self._known[job] = state
        changed = before != self._known
        self._pause = SOONEST if changed else min(self._pause * 1.5, LATEST)


_SHARED: weakref.WeakKeyDictionary[Commands, States] = weakref.WeakKeyDictionary()


def states_of(commands: Commands) -> States:
    """What all jobs of one Slurm share."""
    return _SHARED.setdefault(commands, States(commands))


def recorded(commands: Commands, job: str) -> str:
    """The state that Slurm's accounting has, where there is any; else UNKNOWN."""
    try:
        said = commands.run(["sacct", "-n", "-X", "-P", "-j", job, "-o", "State"])
    except Unavailable:
        return UNKNOWN
    words = said.out.split()
    return words[0] if said.code == 0 and words else UNKNOWN
