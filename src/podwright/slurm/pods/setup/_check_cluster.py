"""What proofs of a set-up ask: Slurm's commands, and the server's partitions."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from podwright.client import Client
from podwright.slurm.pods.service import Site, reach
from podwright.wire import PartitionInfo

SLEEP: Final = "#!/bin/sh\nsleep 60\n"
#: Looks in a row that show a job held before it is taken for that: Slurm takes its time.
_HELD: Final = 5
#: Says what is wrong, or "".
Check = Callable[[], str]


@dataclass(frozen=True)
class ServedCluster:
    """The site and its Slurm. wait_s: how long a small job may take, beside others' jobs."""

    site: Site
    wait_s: float = 60.0

    def ask(self, *argv: str, stdin: str = "", user: str | None = None) -> tuple[int, str]:
        """A command's exit code and what it said, as one line. user: as whom root runs it."""
        if user:
            argv = ("runuser", "-u", user, "--", *argv)
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=self.wait_s,
                check=False,
                cwd="/" if user else None,  # where that user may be as well
            )
        except subprocess.TimeoutExpired:
            said = (
                f"{argv[0]} did not end within {self.wait_s:g} s: the cluster may be full (--wait)"
            )
            return 1, said
        except OSError as error:
            return 1, str(error)
        return done.returncode, " ".join((done.stdout + " " + done.stderr).split())

    def lines(self, *argv: str) -> list[str]:
        """What a command says, line by line; none where it fails."""
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=self.wait_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        return done.stdout.splitlines() if done.returncode == 0 else []

    def members(self, first: str) -> list[str]:
        """The jobs of an array or of a heterogeneous job, by their own numbers."""
        code, said = self.ask("squeue", "-h", "-r", "-j", first, "-O", "JobID:30")
        return [] if code else said.split()

    @contextmanager
    def partitions(self) -> Iterator[Callable[[], dict[str, PartitionInfo]]]:
        """A look at the server's partitions, by name. Raises PodwrightError."""
        client: Client
        with reach(self.site, self.wait_s) as client:
            yield lambda: {one.name: one for one in client.list_partitions()}

    def until(self, probe: Callable[[], bool], job: str = "") -> bool:
        """Whether something comes to be in time. job: nor does it where this job is held."""
        deadline = time.monotonic() + self.wait_s
        held = 0
        while not probe():
            reason = self.ask("squeue", "-h", "-j", job, "-O", "Reason:60")[1] if job else ""
            held = held + 1 if "JobHeld" in reason else 0
            if held > _HELD or time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def state(self, job: str) -> str:
        """What Slurm says of a job that does not run, in its own words."""
        asked = "State:20,Reason:60,RestartCnt:10,admin_comment:300"
        return self.ask("squeue", "-h", "-j", job, "-O", asked)[1][:300] or "it is over"

    def late(self, job: str) -> str:
        """Why a job has not come so far in time."""
        return f"it does not run: {self.state(job)}"


def is_root() -> bool:
    """Whether we may do what ordinary users may not."""
    return os.geteuid() == 0
