"""How long the Slurm tools that read and write text take, each as a whole process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench import Figures, figure

RUNS = 9
LIMIT = 0.15
NODES = 1000


def _seconds(argv: list[str]) -> float:
    """The median time of one process over several runs; it may exit with 1 (findings) or 3 (not
    known)."""
    command = [sys.executable, "-m", "podwright.cli.podwright", "slurm", *argv]
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        times.append(time.perf_counter() - start)
        if done.returncode not in (0, 1, 3):
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


def inventory(nodes: int) -> str:
    """An inventory as a survey writes it: each node for itself, eight GPUs, rails, switches."""
    names = [f"gpu{n:04}" for n in range(nodes)]
    gpus = [
        {"type": "h100", "file": f"/dev/nvidia{n}", "memory": 80, "numa": n // 4} for n in range(8)
    ]
    nics = [{"device": f"mlx5_{n}", "interface": f"ib{n}", "numa": n // 4} for n in range(8)]
    tables = [
        {
            "name": name,
            "sockets": 2,
            "cores_per_socket": 56,
            "threads_per_core": 2,
            "memory": 2063000,
            "gpus": [{**gpu, "uuid": f"GPU-{name}-{index}"} for index, gpu in enumerate(gpus)],
            "nics": nics,
        }
        for name in names
    ]
    leaves = [
        {"name": f"leaf{unit}r{rail}", "nodes": names[unit * 32 : unit * 32 + 32]}
        for unit in range(-(-nodes // 32))
        for rail in range(8)
    ]
    spine = {"name": "spine", "switches": [leaf["name"] for leaf in leaves]}
    return json.dumps({"nodes": tables, "switches": [*leaves, spine]})


def _configure(folder: Path) -> float:
    (folder / "slurm.conf").write_text("ClusterName=x\nSelectType=select/cons_tres\n")
    (folder / "site.json").write_text(inventory(NODES))
    conf = f"--slurm-conf={folder}/slurm.conf"
    words = ["configure", "--gpus", f"{folder}/site.json", conf, "--slurm-version=24.11"]
    return _seconds(words)


def run() -> Figures:
    """Seconds of lint, explain-request and configure --gpus, as whole processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.sh"
        path.write_text(script(200))
        words = ["lint", "--slurm-version", "22.05", "--topology", "none", str(path)]
        yield figure("slurm_lint", _seconds(words), "s", limit=LIMIT, lines=200, runs=RUNS)
    words = ["explain-request", "--rules", "--node-gpus=8"]
    options = ["--gres=gpu:4", "--nodes=2", "--ntasks-per-node=2"]
    yield figure(
        "slurm_explain_request",
        _seconds([*words, *options]),
        "s",
        limit=LIMIT,
        options=" ".join(options),
        runs=RUNS,
    )
    with tempfile.TemporaryDirectory() as folder:
        seconds = _configure(Path(folder))
    yield figure("slurm_configure_gpus", seconds, "s", limit=1.0, nodes=NODES, runs=RUNS)
