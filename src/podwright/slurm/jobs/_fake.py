"""A fake Slurm with one host. Its jobs run at once, for tests of code that submits them."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from podwright.slurm.site.command_result import CommandResult

_SRUN = """\
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
codes=0
for ((task = 0; task < SLURM_NTASKS; task++)); do SLURM_PROCID=$task "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || codes=1; done
exit $codes
"""


class FakeSlurmJobs:
    """Answers sbatch, squeue, sacct and scancel.

    first: the number of the first job. commands: those so far. hold: jobs stay PENDING.
    refuses: what sbatch prints instead of accepting a job. forgets: squeue no longer lists jobs
    that are over.
    """

    def __init__(self, first: int = 100) -> None:
        self.commands: list[list[str]] = []
        self.refuses = ""
        self.hold = self.forgets = False
        self._bin = tempfile.TemporaryDirectory(prefix="podwright-fake-")
        srun = Path(self._bin.name) / "srun"
        srun.write_text(_SRUN)
        srun.chmod(0o755)
        self._first = first
        self._jobs: dict[int, subprocess.Popen[bytes] | None] = {}
        self._cancelled: set[int] = set()

    def run(self, argv: Sequence[str], text: str = "") -> CommandResult:
        """Do what the command of that name does."""
        self.commands.append(list(argv))
        if argv[0] == "sbatch":
            return self._sbatch(argv, text)
        if argv[0] == "scancel":
            return self._scancel(int(argv[1]))
        if argv[0] == "squeue":
            jobs = [n for n in self._jobs if not (self.forgets and self._over(n))]
            return CommandResult(0, "".join(f"{n:<20}{self._state(n):<20}\n" for n in jobs), "")
        return CommandResult(1, "", f"{argv[0]}: there is no accounting")

    def _sbatch(self, argv: Sequence[str], text: str) -> CommandResult:
        if self.refuses:
            return CommandResult(1, "", f"sbatch: error: {self.refuses}")
        options = dict(word.removeprefix("--").partition("=")[::2] for word in argv[1:])
        number = self._first + len(self._jobs)
        self._jobs[number] = None
        if not self.hold:
            path = f"{self._bin.name}:{os.environ['PATH']}"
            own = {"PATH": path, "SLURM_NTASKS": options["ntasks"], "SLURM_JOB_ID": str(number)}
            with open(options["output"], "ab") as log:
                process = subprocess.Popen(
                    ["bash", "-c", text],
                    env={**os.environ, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._jobs[number] = process
        return CommandResult(0, f"{number}\n", "")

    def _scancel(self, number: int) -> CommandResult:
        process = self._jobs[number]
        if not self._over(number):
            self._cancelled.add(number)
            if process:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return CommandResult(0, "", "")

    def _over(self, number: int) -> bool:
        process = self._jobs[number]
        return number in self._cancelled or bool(process and process.poll() is not None)

    def _state(self, number: int) -> str:
        process = self._jobs[number]
        if number in self._cancelled:
            return "CANCELLED"
        if process is None:
            return "PENDING"
        code = process.poll()
        return "RUNNING" if code is None else "FAILED" if code else "COMPLETED"

    def close(self) -> None:
        """End all jobs, and remove the temporary files."""
        for job_id in self._jobs:
            self._scancel(job_id)
        self._bin.cleanup()
