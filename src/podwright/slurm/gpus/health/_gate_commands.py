"""The gate's hands: sinfo and scontrol, the lock of a node, what it remembers, the system's log.

Slurm runs health checks and prologs without PATH and SLURM_CONF; who calls sets both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from podwright.slurm.gpus.health._gate import (
    FORMAT,
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
from podwright.slurm.gpus.health._state import FOLDER, replace

_PATIENCE = 15.0  # seconds for a command of Slurm's: slurmd gives a check one minute in all

#: Runs a command; what it printed, None where it failed or did not end in time.
Run = Callable[[Sequence[str]], str | None]


def runner(environ: Mapping[str, str]) -> Run:
    """Runs commands of Slurm's with this environment."""

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
    """Do what the gate says. Of two checks on a node at once the second waits."""
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
        said = run(["sinfo", "-a", "-h", "-N", "-o", FORMAT])
        return None if said is None else read_rows(said)
    if isinstance(step, Wait):
        sleep(SECOND)
        return None
    if isinstance(step, Drain):
        _record(folder, node, step.reason)  # before: an end in between leaves a node of ours
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
    """A node checks itself once at a time; where nothing can be written, it does not matter."""
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
    with contextlib.suppress(OSError):  # a node without a disk forgets
        replace(folder / f"{node}.reason", f"{reason}\n")


def tell(text: str) -> None:
    """To the system's log, where it has one."""
    import logging
    import logging.handlers

    with contextlib.suppress(OSError):
        handler = logging.handlers.SysLogHandler("/dev/log")
        handler.ident = "podwright: "
        handler.emit(logging.LogRecord("", logging.WARNING, "", 0, text, None, None))
        handler.close()
