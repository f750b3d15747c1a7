"""The states of this user's jobs. Slurm is asked for all of them at once, and not too often.

slurmctld answers everybody on the cluster. So many jobs cause one question, and the longer nothing
changes, the more rarely it is asked.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from podwright.errors import Unavailable
from podwright.slurm.jobs._job_commands import Commands
from podwright.slurm.reader import accounting_command, listing_format, read_listing

#: The shortest and the longest time between two questions, in seconds.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
_LIST = ("squeue", "--me", "--noheader", "-t", "all", "-O")
_COLUMN_WIDTHS = {"job": 20, "state": 20}
UNKNOWN_STATE, FORGOTTEN_STATE = "UNKNOWN", "FORGOTTEN"
#: States after which nothing happens to a job any more (squeue's manual, JOB STATE CODES).
FINAL_STATES = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)


class States:
    """The states that squeue last printed. Any thread may call this."""

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands, self._clock = commands, clock
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self._asked_at, self._pause = float("-inf"), SHORTEST_PAUSE_S
        self._answered = False

    def state(self, job: str) -> str | None:
        """Return the state of a job, in Slurm's word, or FORGOTTEN where squeue does not list it.

        None: squeue has not answered yet.
        """
        with self._lock:
            now = self._clock()
            if self._known.get(job) is None or now - self._asked_at >= self._pause:
                self._ask_squeue(now)
            return self._known.get(job, FORGOTTEN_STATE if self._answered else None)

    def ask_soon(self) -> None:
        """Ask the next question at once, because something was changed."""
        with self._lock:
            self._pause, self._asked_at = SHORTEST_PAUSE_S, float("-inf")

    def _ask_squeue(self, now: float) -> None:
        squeue_result = self._commands.run([*_LIST, listing_format(**_COLUMN_WIDTHS)])
        self._asked_at = now
        if squeue_result.code:
            return  # slurmctld does not answer: its last answer still applies
        self._answered = True
        old_states, self._known = self._known, {}
        for listing_row in read_listing(squeue_result.out, **_COLUMN_WIDTHS):
            self._known[listing_row["job"]] = listing_row["state"]
        has_changed = old_states != self._known
        self._pause = SHORTEST_PAUSE_S if has_changed else min(self._pause * 1.5, LONGEST_PAUSE_S)


_STATES_BY_COMMANDS: weakref.WeakKeyDictionary[Commands, States] = weakref.WeakKeyDictionary()


def states_of(commands: Commands) -> States:
    """Return the States that all jobs of one Slurm share."""
    return _STATES_BY_COMMANDS.setdefault(commands, States(commands))


def recorded(commands: Commands, job_number: str) -> str:
    """Return the state in Slurm's accounting, or UNKNOWN where there is none."""
    try:
        sacct_result = commands.run(
            [*accounting_command("state"), "--allocations", f"--jobs={job_number}"]
        )
    except Unavailable:
        return UNKNOWN_STATE
    output_words = sacct_result.out.split()
    return output_words[0] if sacct_result.code == 0 and output_words else UNKNOWN_STATE
