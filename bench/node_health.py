"""How long `podwright node health` takes on a healthy node of eight GPUs, as a whole process.

The GPUs are the stand-in's below NVIDIA's real bindings; everything else is this machine's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench import Figures, figure

RUNS = 15
LIMIT = 1.0
NODE = 'gpus = 8\nname = "NVIDIA H100 80GB HBM3"\nmemory = 81559\nnvlinks = 18\n'


def _once(environ: dict[str, str]) -> tuple[float, float]:
    """Seconds that passed, and of processor time."""
    command = [sys.executable, "-m", "podwright.cli.podwright", "node", "health"]
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):
        raise RuntimeError(f"node health: exit {process.returncode}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def run() -> Figures:
    """Seconds of one check, and of processor time in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.toml"
        path.write_text(NODE)
        environ = {**os.environ, "PODWRIGHT_STANDIN_NVML": str(path)}
        times = [_once(environ) for _ in range(RUNS)]
    yield figure(
        "node_health",
        median(passed for passed, _ in times),
        "s",
        limit=LIMIT,
        gpus=8,
        processor_s=round(median(used for _, used in times), 3),
        runs=RUNS,
    )
