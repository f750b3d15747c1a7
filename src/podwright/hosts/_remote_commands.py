"""Commands that run on many hosts at once and end with the process that started them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class RemoteAnswer(NamedTuple):
    """The output of a command, and its exit code: None where it did not end in time.

    before, after: seconds since 1970 when it was started, and when its end was noticed.
    """

    out: str
    err: str
    code: int | None
    before: float
    after: float


def ask_all(
    commands: Sequence[Sequence[str]], environ: Mapping[str, str], timeout_s: float
) -> list[RemoteAnswer]:
    """Run all commands at once.

    Return their answers. timeout_s: seconds for all together. Raises OSError.

    No command is left running, however the call ends.
    """
    import subprocess  # 10 ms; few launches ask hosts

    running_processes: list[tuple[subprocess.Popen[str], float]] = []
    try:
        for command in commands:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=dict(environ),
            )
            running_processes.append((process, time.time()))
        deadline = time.monotonic() + timeout_s
        answers = []
        for process, started_at in running_processes:
            exit_code, out, err = None, "", ""
            try:
                out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
                exit_code = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                # Processes that the command has started may keep its output open for as long as
                # they like.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=0.1)
            answers.append(RemoteAnswer(out, err, exit_code, started_at, time.time()))
        return answers
    finally:
        for process, _ in running_processes:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
