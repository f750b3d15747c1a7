"""What poprun costs while a program runs: lines a second, its memory, and many instances.

Lines come at a steady 100,000 a second from four instances; what counts is how much of a core
poprun takes for them (its own process, which does nothing else), and that each arrives whole.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from bench import Figures, figure
from bench.poprun import _end_servers

BIN = Path(sys.executable).parent
INSTANCES, RATE, SECONDS = 4, 100_000, 8.0
MANY, ROUNDS = 256, 3
PLANNED = 1024
_TEXT = "step {:9} loss 0.12345678 of an ordinary line of a training log"

_WRITER = f"""
import os, sys, time
rate, seconds = {RATE // INSTANCES}, {SECONDS}
each = rate // 100
start = time.monotonic()
for turn in range(int(seconds * 100)):
    first = turn * each
    os.write(1, ''.join({_TEXT!r}.format(i) + chr(10) for i in range(first, first + each)).encode())
    pause = start + (turn + 1) / 100 - time.monotonic()
    if pause > 0: time.sleep(pause)
"""


def run() -> Figures:
    """Cores for the lines, memory at many instances, and their time beside mpirun's."""
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as folder:
        environ = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("VIPU_", "PODWRIGHT_"))},
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": folder,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        try:
            yield from _lines(environ)
            yield from _many(environ)
            yield from _planned(environ)
        finally:
            _end_servers(environ)


def _poprun(instances: int, *words: str) -> list[str]:
    counts = [f"--num-replicas={instances}", f"--num-instances={instances}"]
    return [str(BIN / "poprun"), *counts, "--offline-mode=yes", *words]


def _lines(environ: Mapping[str, str]) -> Figures:
    words = [sys.executable, "-c", _WRITER]
    with subprocess.Popen(
        _poprun(INSTANCES, *words), env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        out = cast(io.BufferedReader, process.stdout)
        first = out.readline()
        before, start = _cpu(process.pid), time.perf_counter()
        used, taken, peak = before, 0.0, 0
        rest, lines, whole = first, 0, 0
        while piece := out.read1(1 << 20):
            *ready, rest = (rest + piece).split(b"\n")
            lines += len(ready)
            whole += sum(line.startswith(b"[1,") and line.endswith(b"log") for line in ready)
            try:
                used, peak = _cpu(process.pid), _peak(process.pid)
                taken = time.perf_counter() - start
            except (OSError, IndexError):
                pass
    params: dict[str, Any] = {"instances": INSTANCES, "lines": lines, "broken": lines - whole}
    yield figure("poprun_lines", lines / taken, "lines/s", **params)
    yield figure("poprun_lines_cores", (used - before) / taken, "cores", limit=1.0, **params)
    yield figure("poprun_lines_memory", peak / 1024, "MB", **params)


def _many(environ: Mapping[str, str]) -> Figures:
    mpirun = [str(BIN / "mpirun"), "--oversubscribe", "--bind-to", "none", "-np", str(MANY), "true"]
    plain, ours = [], []
    for _ in range(ROUNDS):
        plain.append(_seconds(mpirun, environ))
        ours.append(_seconds(_poprun(MANY, "true"), environ))
    base, median = statistics.median(plain), statistics.median(ours)
    params: dict[str, Any] = {"instances": MANY, "program": "true", "rounds": ROUNDS}
    yield figure("mpirun_many", base, "s", **params)
    yield figure("poprun_many", median, "s", limit=1.5 * base, times=median / base, **params)


def _planned(environ: Mapping[str, str]) -> Figures:
    command = [*_poprun(PLANNED, "--dry-run", "true")]
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(command, env=environ, stdout=nowhere, stderr=nowhere)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    megabytes = usage.ru_maxrss / 1024
    yield figure("poprun_planned_memory", megabytes, "MB", limit=100.0, instances=PLANNED)


def _seconds(command: list[str], environ: Mapping[str, str]) -> float:
    """Of one launch; 64 and more instances of `true` under mpirun sometimes hang: try again."""
    for _ in range(5):
        before = time.perf_counter()
        process = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if process.wait(30) == 0:
                return time.perf_counter() - before
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    raise RuntimeError(f"{command[0]} does not get {MANY} instances to their end")


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has had, its children not counted."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> int:
    """The most memory that a process ever had, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise IndexError(pid)
