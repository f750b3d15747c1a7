"""How long the Slurm tools that look at text take, each as a whole process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench import Figures, figure

RUNS = 9
LIMIT = 0.15


def _seconds(argv: list[str]) -> float:
    """The median time of one process over several runs; its exit code may be 1 (findings)."""
    command = [sys.executable, "-m", "podwright.cli.podwright", "slurm", *argv]
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        times.append(time.perf_counter() - start)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{argv}: exit {done.returncode}")
    return median(times)


def script(lines: int) -> str:
    """A job script of so many lines, with a few mistakes."""
    head = [
        "#!/bin/bash",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --gres=gpu:4",
        "export MASTER_ADDR=$(echo $SLURM_JOB_NODELIST | cut -d, -f1)",
        "export NCCL_IB_DISABLE=1",
    ]
    body = [
        (
            f'export SETTING_{n}="value {n}"'
            if n % 3
            else f"srun python step.py --index {n} # step {n}"
        )
        for n in range(lines - len(head))
    ]
    return "\n".join(head + body) + "\n"


def run() -> Figures:
    """Seconds of lint and explain-request, as whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.sh"
        path.write_text(script(200))
        words = ["lint", "--slurm-version", "22.05", "--topology", "none", str(path)]
        yield figure("slurm_lint", _seconds(words), "s", limit=LIMIT, lines=200, runs=RUNS)
    words = ["explain-request", "--node-gpus=8"]
    options = ["--gres=gpu:4", "--nodes=2", "--ntasks-per-node=2"]
    yield figure(
        "slurm_explain_request",
        _seconds([*words, *options]),
        "s",
        limit=LIMIT,
        options=" ".join(options),
        runs=RUNS,
    )
