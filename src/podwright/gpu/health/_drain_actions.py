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

from podwright.gpu.health._drain_decisions import (
    CLOCK_TICK_SECONDS,
    LIST_NODES_COMMAND,
    Drain,
    GateOutcome,
    Look,
    NodeGate,
    Resume,
    Step,
    Wait,
    read_rows,
)
from podwright.gpu.health._node_health_state import FOLDER
from podwright.ground.durable_files import write_whole

_COMMAND_TIMEOUT_S = (
    15.0  # seconds for a command of Slurm's: slurmd gives a check one minute in total
)

#: Runs a command and returns its output; None where it failed or did not end in time.
Run = Callable[[Sequence[str]], str | None]


def runner(environ: Mapping[str, str]) -> Run:
    """A function that runs Slurm's commands with this environment."""

    def run(words: Sequence[str]) -> str | None:
        try:
            process = subprocess.run(
                words,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return process.stdout if process.returncode == 0 else None

    return run


def carry_out(
    gate: NodeGate,
    reason: str,
    run_slurm: Run,
    sleep: Callable[[float], None] = time.sleep,
    state_folder: Path = FOLDER,
) -> GateOutcome:
    """Carry out the steps of the gate. Where two checks run on a node at once, the second one
    waits."""
    with _lock_node(state_folder, gate.node):
        gate = gate._replace(recorded=_read_own_reason(state_folder, gate.node))
        gate_steps = gate.steps(reason)
        answer: object = None
        while True:
            try:
                gate_step = gate_steps.send(answer)
            except StopIteration as gate_end:
                outcome: GateOutcome = gate_end.value
                return outcome
            answer = _carry_out_step(gate_step, gate.node, run_slurm, sleep, state_folder)


def _carry_out_step(
    gate_step: Step, node: str, run_slurm: Run, sleep: Callable[[float], None], state_folder: Path
) -> object:
    if isinstance(gate_step, Look):
        sinfo_output = run_slurm(LIST_NODES_COMMAND)
        return None if sinfo_output is None else read_rows(sinfo_output)
    if isinstance(gate_step, Wait):
        sleep(CLOCK_TICK_SECONDS)
        return None
    if isinstance(gate_step, Drain):
        # Written before the change: if the process ends in between, the node is known as ours.
        _record_own_reason(state_folder, node, gate_step.reason)
        drain_settings = ["State=DRAIN", f"Reason={gate_step.reason}"]
        return run_slurm(["scontrol", "update", f"NodeName={node}", *drain_settings]) is not None
    if isinstance(gate_step, Resume):
        resumed = run_slurm(["scontrol", "update", f"NodeName={node}", "State=RESUME"]) is not None
        if resumed:
            _record_own_reason(state_folder, node, "")
        return resumed
    raise AssertionError(gate_step)


@contextlib.contextmanager
def _lock_node(state_folder: Path, node: str) -> Iterator[None]:
    """Let only one check of a node run at a time; without a writable folder, several may run."""
    try:
        state_folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            state_folder / f"{node}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
        )
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_own_reason(state_folder: Path, node: str) -> str | None:
    try:
        return (state_folder / f"{node}.reason").read_text().strip() or None
    except OSError:
        return None


def _record_own_reason(state_folder: Path, node: str, reason: str) -> None:
    with contextlib.suppress(OSError):  # a node without a disk does not remember
        write_whole(state_folder / f"{node}.reason", f"{reason}\n", 0o644)


def log_warning(warning: str) -> None:
    """Write a warning to the system's log. On a machine without a log the warning is lost
    silently."""
    import syslog

    syslog.openlog("podwright")
    syslog.syslog(syslog.LOG_WARNING, warning)
    syslog.closelog()
