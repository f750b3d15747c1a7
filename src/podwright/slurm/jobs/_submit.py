"""`podwright.slurm.submit`: turns a function into a batch job whose tasks each call it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podwright.errors import InvalidRequest
from podwright.functions import dump_call, private_folder
from podwright.slurm.jobs._job_commands import LOCAL_COMMANDS, Commands, checked
from podwright.slurm.jobs._slurm_job import SlurmJob, link

R = TypeVar("R")

Option = bool | int | str
_BATCH_SCRIPT = """\
#!/bin/bash
umask 077
rm -f {folder}/end
cd {cwd} || exit 1
srun --kill-on-bad-exit=1{more} {python} -P -m podwright.functions {folder}/call {folder}
code=$?
echo $code >{folder}/end.new && mv {folder}/end.new {folder}/end
exit $code
"""


def submit(
    function: Callable[..., R],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    ipus: int | None = None,
    tasks: int = 1,
    name: str = "",
    folder: str | None = None,
    cwd: str | None = None,
    commands: Commands | None = None,
    **options: Option,
) -> SlurmJob[R]:
    """Submit a job that calls a function in each of its tasks. Returns once Slurm has accepted it.

    kwargs: keyword arguments of the function. ipus: devices of a pod, for all tasks together, where
    Slurm knows `--ipus`. tasks: the number of processes. name: the job's name; by default the
    function's. folder: where the function, its results and the job's output are kept, on a file
    system that the nodes share; `~/.podwright/jobs` by default. It is made for this user alone.
    cwd: the tasks' working directory; by default this process's. options: any other option of
    sbatch, with underscores: `time="1:00:00"`, `partition="long"`, `gpus_per_task=1`,
    `exclusive=True`.

    The nodes need the same Python with Podwright, at the same path. Raises `NotPicklable`;
    `PodwrightError` with Slurm's words where Slurm refuses; `Unavailable` where there is no Slurm.
    """
    if tasks < 1:
        raise InvalidRequest(f"a job has at least one task, not {tasks}")
    commands = commands or LOCAL_COMMANDS
    call_bytes = dump_call(function, args, kwargs or {})
    base_folder = private_folder(os.path.abspath(folder or os.path.expanduser("~/.podwright/jobs")))
    job_folder = private_folder(os.path.join(base_folder, os.urandom(8).hex()))
    _write_private_file(job_folder, "call", call_bytes)
    description = {"tasks": tasks, "name": name or getattr(function, "__name__", "function")}
    _write_private_file(job_folder, "job.json", json.dumps(description).encode())
    _write_private_file(job_folder, "log", b"")  # for this user alone, whatever the umask
    script_text = _BATCH_SCRIPT.format(
        cwd=shlex.quote(cwd or os.getcwd()),
        python=shlex.quote(sys.executable),
        folder=shlex.quote(job_folder),
        # Since 22.05 a step no longer inherits this from its job.
        more=f" --cpus-per-task={options['cpus_per_task']}" if "cpus_per_task" in options else "",
    )
    sbatch_arguments = [
        "sbatch",
        "--parsable",
        f"--job-name={description['name']}",
        f"--ntasks={tasks}",
    ]
    sbatch_arguments += [f"--output={job_folder}/log", "--open-mode=append"]
    sbatch_arguments += [f"--ipus={ipus}"] if ipus is not None else []
    sbatch_arguments += _option_arguments(options)
    job_number = checked(commands, sbatch_arguments, script_text).split(";")[0].strip()
    if not job_number.isdigit():
        raise InvalidRequest(f"sbatch gave no number of a job, but {job_number!r}")
    link(base_folder, job_folder, job_number)
    return SlurmJob(job_number, job_folder, commands)


def _option_arguments(options: Mapping[str, Option]) -> list[str]:
    arguments = []
    for option_name, option_value in options.items():
        flag = f"--{option_name.replace('_', '-')}"
        if option_value is True:
            arguments.append(flag)
        elif option_value is not False:
            arguments.append(f"{flag}={option_value}")
    return arguments


def _write_private_file(job_folder: str, file_name: str, content: bytes) -> None:
    open_flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(os.path.join(job_folder, file_name), open_flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
