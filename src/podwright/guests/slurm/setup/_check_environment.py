"""What the checks of a set-up use: Slurm's commands, and the server's partitions."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from podwright.client import Client
from podwright.guests.slurm.hooks import reach
from podwright.guests.slurm.service import Site
from podwright.slurm.reader import listing_format
from podwright.slurm.site.command_result import CommandResult
from podwright.wire import PartitionInfo

SLEEP_SCRIPT: Final = "#!/bin/sh\nsleep 60\n"
#: How many looks in a row must show a job held before it counts as held: Slurm may be slow.
_HELD_LOOKS_NEEDED: Final = 5
#: Returns what is wrong, or "".
Check = Callable[[], str]


#: Slurm's reasons for a job that would run on an emptier cluster.
_FULL_REASONS: Final = frozenset(
    {
        "Resources",
        "Priority",
        "Licenses",
        "Reservation",
        "QOSGrpNodeLimit",
        "QOSMaxJobsPerUserLimit",
    }
)


#: The beginning of a problem that says why a promise was neither kept nor broken.
NOT_TRIED: Final = "not tried: "


@dataclass(frozen=True)
class ServedCluster:
    """The site and its Slurm. wait_s: seconds that a small job may take beside others' jobs."""

    site: Site
    wait_s: float = 60.0

    def ask(self, *argv: str, stdin: str = "", user: str | None = None) -> tuple[int, str]:
        """Run a command, and return its exit code and both outputs as one line.

        user: the user as whom root runs it.
        """
        command_result = self.run(*argv, stdin=stdin, user=user)
        return command_result.code, " ".join(
            (command_result.out + " " + command_result.err).split()
        )

    def run(self, *argv: str, stdin: str = "", user: str | None = None) -> CommandResult:
        """Run a command, and return its exit code and its two outputs apart.

        On a busy cluster srun writes to standard error that the job is queued. user: the user as
        whom root runs it.
        """
        if user:
            argv = ("runuser", "-u", user, "--", *argv)
        pipe = subprocess.PIPE
        try:
            with subprocess.Popen(
                argv,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                cwd="/" if user else None,  # a folder that this user may enter
            ) as process:
                try:
                    out, err = process.communicate(stdin, timeout=self.wait_s)
                except subprocess.TimeoutExpired:
                    full = self.full(user=user)  # asked while the job still waits
                    process.terminate()
                    process.communicate()
                    timeout_text = f"{argv[0]} did not end within {self.wait_s:g} s"
                    return CommandResult(1, "", full or timeout_text)
        except OSError as error:
            return CommandResult(1, "", str(error))
        return CommandResult(process.returncode, out, err)

    def full(self, job: str = "", user: str | None = None) -> str:
        """Return NOT_TRIED and why, if our newest job, or this one, waits for room; else ""."""
        which = ["-j", job] if job else ["--sort=-V", "-u", user or str(os.geteuid())]
        columns = listing_format(state=20, reason=60)
        try:
            listed = subprocess.run(
                ["squeue", "-h", *which, "-O", columns],
                capture_output=True,
                text=True,
                timeout=self.wait_s,
                check=False,
            ).stdout.split()
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if len(listed) < 2 or listed[0] != "PENDING" or listed[1] not in _FULL_REASONS:
            return ""
        return f"{NOT_TRIED}the cluster is full: a job waits for {listed[1]} (--wait SECONDS)"

    def lines(self, *argv: str) -> list[str]:
        """Run a command, and return the lines that it prints, or none if it fails."""
        try:
            completed = subprocess.run(
                argv, capture_output=True, text=True, timeout=self.wait_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        return completed.stdout.splitlines() if completed.returncode == 0 else []

    def members(self, first_job: str) -> list[str]:
        """Return the jobs of an array or of a heterogeneous job, by their own numbers."""
        code, output = self.ask("squeue", "-h", "-r", "-j", first_job, "-O", listing_format(job=30))
        return [] if code else output.split()

    @contextmanager
    def partitions(self) -> Iterator[Callable[[], dict[str, PartitionInfo]]]:
        """Yield a function that returns the server's partitions, by name. Raises PodwrightError."""
        client: Client
        with reach(self.site, self.wait_s) as client:
            yield lambda: {info.name: info for info in client.list_partitions()}

    def until(self, probe: Callable[[], bool], job: str = "") -> bool:
        """Wait until `probe` returns True. Return whether it did so within wait_s seconds.

        job: if this job is held, the wait ends early, with False.
        """
        deadline = time.monotonic() + self.wait_s
        looks = 0
        command = ["squeue", "-h", "-j", job, "-O", listing_format(reason=60)]
        while not probe():
            reason = self.ask(*command)[1] if job else ""
            looks = looks + 1 if "JobHeld" in reason else 0
            if looks > _HELD_LOOKS_NEEDED or time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def state(self, job: str) -> str:
        """Return what Slurm says about a job that does not run, in its own words."""
        columns = listing_format(state=20, reason=60, restarts=10, comment=300)
        return self.ask("squeue", "-h", "-j", job, "-O", columns)[1][:300] or "it is over"

    def late(self, job_id: str) -> str:
        """Return the problem of a job that did not start in time, in words."""
        return f"it does not run: {self.state(job_id)}"


def is_root() -> bool:
    """Return whether we are root, and may do what ordinary users may not."""
    return os.geteuid() == 0
