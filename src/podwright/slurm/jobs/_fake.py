"""A fake Slurm with one host. Its jobs run at once, for tests of code that submits them."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from podwright.slurm.site.command_result import CommandResult

_SRUN_SCRIPT = """\
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
codes=0
for ((task = 0; task < SLURM_NTASKS; task++)); do SLURM_PROCID=$task "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || codes=1; done
exit $codes
"""


class FakeSlurmJobs:
    """Answers sbatch, squeue, sacct and scancel.

    first_number: the number of the first job. commands: those so far. hold: jobs stay PENDING.
    refuses: what sbatch prints instead of accepting a job. forgets: squeue no longer lists jobs
    that are over.
    """

    def __init__(self, first_number: int = 100) -> None:
        self.commands: list[list[str]] = []
        self.refuses = ""
        self.hold = self.forgets = False
        self._bin = tempfile.TemporaryDirectory(prefix="podwright-fake-")
        srun_path = Path(self._bin.name) / "srun"
        srun_path.write_text(_SRUN_SCRIPT)
        srun_path.chmod(0o755)
        self._first = first_number
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
            listed_jobs = [
                job_number
                for job_number in self._jobs
                if not (self.forgets and self._is_over(job_number))
            ]
            return CommandResult(
                0,
                "".join(
                    f"{job_number:<20}{self._job_state(job_number):<20}\n"
                    for job_number in listed_jobs
                ),
                "",
            )
        return CommandResult(1, "", f"{argv[0]}: there is no accounting")

    def _sbatch(self, argv: Sequence[str], script_text: str) -> CommandResult:
        if self.refuses:
            return CommandResult(1, "", f"sbatch: error: {self.refuses}")
        sbatch_options = dict(
            argument.removeprefix("--").partition("=")[::2] for argument in argv[1:]
        )
        job_number = self._first + len(self._jobs)
        self._jobs[job_number] = None
        if not self.hold:
            search_path = f"{self._bin.name}:{os.environ['PATH']}"
            job_variables = {
                "PATH": search_path,
                "SLURM_NTASKS": sbatch_options["ntasks"],
                "SLURM_JOB_ID": str(job_number),
            }
            with open(sbatch_options["output"], "ab") as log_file:
                process = subprocess.Popen(
                    ["bash", "-c", script_text],
                    env={**os.environ, **job_variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=log_file,
                    start_new_session=True,
                )
            self._jobs[job_number] = process
        return CommandResult(0, f"{job_number}\n", "")

    def _scancel(self, job_number: int) -> CommandResult:
        process = self._jobs[job_number]
        if not self._is_over(job_number):
            self._cancelled.add(job_number)
            if process:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return CommandResult(0, "", "")

    def _is_over(self, job_number: int) -> bool:
        process = self._jobs[job_number]
        return job_number in self._cancelled or bool(process and process.poll() is not None)

    def _job_state(self, job_number: int) -> str:
        process = self._jobs[job_number]
        if job_number in self._cancelled:
            return "CANCELLED"
        if process is None:
            return "PENDING"
        exit_code = process.poll()
        return "RUNNING" if exit_code is None else "FAILED" if exit_code else "COMPLETED"

    def close(self) -> None:
        """End all jobs, and remove the temporary files."""
        for job_id in self._jobs:
            self._scancel(job_id)
        self._bin.cleanup()
