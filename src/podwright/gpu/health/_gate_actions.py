"""Carries out the decisions of the gate: sinfo and scontrol, the lock of a node, its remembered
state, and the system's log.

Slurm runs health checks and prologs without PATH and SLURM_CONF, so the caller sets both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from podwright.gpu.health._gate import (
    LIST_NODES,
    SECOND,
    Drain,
    GateOutcome,
    Look,
    NodeGate,
    Resume,
    Step,
    Wait,
    read_rows,
)
from podwright.gpu.health._state import FOLDER, replace

_PATIENCE = 15.0  # seconds for a command of Slurm's: slurmd gives a check one minute in total

#: Runs a command and returns its output; None where it failed or did not end in time.
Run = Callable[[Sequence[str]], str | None]


def runner(environ: Mapping[str, str]) -> Run:
    """A function that runs Slurm's commands with this environment."""

    def run(words: Sequence[str]) -> str | None:
        try:
            done = subprocess.run(
                words,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    return run


def carry_out(
    gate: NodeGate,
    reason: str,
    run: Run,
    sleep: Callable[[float], None] = time.sleep,
    folder: Path = FOLDER,
) -> GateOutcome:
    """Carry out the steps of the gate. Where two checks run on a node at once, the second one
    waits."""
    with _alone(folder, gate.node):
        gate = gate._replace(recorded=_recorded(folder, gate.node))
        steps = gate.steps(reason)
        answer: object = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                outcome: GateOutcome = end.value
                return outcome
            answer = _do(step, gate.node, run, sleep, folder)


def _do(step: Step, node: str, run: Run, sleep: Callable[[float], None], folder: Path) -> object:
    if isinstance(step, Look):
        output = run(LIST_NODES)
        return None if output is None else read_rows(output)
    if isinstance(step, Wait):
        sleep(SECOND)
        return None
    if isinstance(step, Drain):
        _record(
            folder, node, step.reason
        )  # written before the change: if the process ends in between, the node is known as ours
        words = ["State=DRAIN", f"Reason={step.reason}"]
        return run(["scontrol", "update", f"NodeName={node}", *words]) is not None
    if isinstance(step, Resume):
        done = run(["scontrol", "update", f"NodeName={node}", "State=RESUME"]) is not None
        if done:
            _record(folder, node, "")
        return done
    raise AssertionError(step)


@contextlib.contextmanager
def _alone(folder: Path, node: str) -> Iterator[None]:
    """Let only one check of a node run at a time; without a writable folder, several may run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = os.open(folder / f"{node}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _recorded(folder: Path, node: str) -> str | None:
    try:
        return (folder / f"{node}.reason").read_text().strip() or None
    except OSError:
        return None


def _record(folder: Path, node: str, reason: str) -> None:
    with contextlib.suppress(OSError):  # a node without a disk does not remember
        replace(folder / f"{node}.reason", f"{reason}\n")


def log_line(text: str) -> None:
    """Write a warning to the system's log. On a machine without a log the warning is lost
    silently."""
    import syslog

    syslog.openlog("podwright")
    syslog.syslog(syslog.LOG_WARNING, text)
    syslog.closelog()
