"""Four processes of one program under poprun, mpirun, torchrun and srun, in turns.

Seconds to the first line of user code and to the end, and processor time. torchrun is the one on
PATH, or what TORCHRUN names; srun is that of a cluster of our own, where this machine can have one
(root, and Slurm installed). A peer that is not there is left out, and standard error says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench import Figures, figure
from bench.poprun import _end_servers

BIN = Path(sys.executable).parent
INSTANCES, ROUNDS = 4, 7
OVER_MPIRUN, OF_TORCHRUN = 0.15, 0.2
#: In one write: torchrun lets lines break into one another.
_PROGRAM = "import os, time\nos.write(1, f'at {time.time()}\\n'.encode())\n"


class Took(NamedTuple):
    """Seconds: from the start to the first line of user code, to the end, and of processors."""

    first: float
    end: float
    cores: float


def run() -> Figures:
    """A figure of each kind for each launcher; poprun's with their limits beside its peers."""
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as folder, _lab() as lab:
        program = Path(folder) / "program.py"
        program.write_text(_PROGRAM)
        environ = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("VIPU_", "PODWRIGHT_"))},
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": folder,
        }
        words = [sys.executable, str(program)]
        launchers = _launchers(words, environ, lab)
        took: dict[str, list[Took]] = {name: [] for name in launchers}
        try:
            for round in range(ROUNDS + 1):
                for name, (command, own) in launchers.items():
                    one = _took(command, own)
                    if round:  # the first fills the file cache and starts the server
                        took[name].append(one)
        finally:
            _end_servers(environ)
    yield from _figures(took)


def _launchers(
    words: list[str], environ: Mapping[str, str], lab: Any
) -> dict[str, tuple[list[str], Mapping[str, str]]]:
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    number = str(INSTANCES)
    ours = [str(BIN / "poprun"), f"--num-replicas={number}", f"--num-instances={number}"]
    mpirun = [str(BIN / "mpirun"), "--oversubscribe", "--bind-to", "none", *root, "-np", number]
    found: dict[str, tuple[list[str], Mapping[str, str]]] = {
        "mpirun": ([*mpirun, *words], environ),
        "poprun": ([*ours, *words], environ),
        "poprun_local": ([*ours, "--launcher=local", *words], environ),
    }
    torchrun = shutil.which(os.environ.get("TORCHRUN", "torchrun"), path=environ["PATH"])
    if torchrun:
        line = [torchrun, "--standalone", f"--nproc-per-node={number}", "--no-python", *words]
        found["torchrun"] = (line, {**environ, "OMP_NUM_THREADS": "1"})
    else:
        print("bench: no torchrun on PATH", file=sys.stderr)
    if lab:
        srun = ["srun", f"--chdir={lab.folder}/out", f"--ntasks={number}", "--quiet"]
        found["srun"] = ([*lab.prefix(), *srun, *words], {**environ, **lab.environment()})
    return found


@contextlib.contextmanager
def _lab() -> Any:
    """A cluster of one node, or nothing."""
    if os.getuid() or not shutil.which("slurmctld"):
        print("bench: no srun: a cluster of our own needs root and Slurm", file=sys.stderr)
        yield None
        return
    from tests.outer.lab import SlurmLab

    with SlurmLab(nodes=1) as lab:
        lab.wait_for_nodes()
        yield lab


def _took(command: list[str], environ: Mapping[str, str]) -> Took:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.time()
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    end = time.time()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    stamps = [float(stamp) for stamp in re.findall(r"\bat ([\d.]+)", done.stdout)]
    if done.returncode or len(stamps) != INSTANCES:
        raise SystemExit(f"{command[0]} ended with code {done.returncode}: {done.stderr}")
    cores = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Took(min(stamps) - start, end - start, cores)


def _figures(took: Mapping[str, list[Took]]) -> Figures:
    median = {
        name: Took(*(statistics.median(column) for column in zip(*rows, strict=True)))
        for name, rows in took.items()
    }
    params: dict[str, Any] = {"instances": INSTANCES, "rounds": ROUNDS}
    for name, one in median.items():
        for what in ("first", "end"):
            value = getattr(one, what)
            limits = []
            if name == "poprun":
                limits.append(getattr(median["mpirun"], what) + OVER_MPIRUN)
                if "torchrun" in median:
                    limits.append(getattr(median["torchrun"], what) * OF_TORCHRUN)
            limit = min(limits) if limits else None
            yield figure(f"peers_{what}", value, "s", limit=limit, launcher=name, **params)
        # Of what the launcher waited for: slurmd's own children are not srun's.
        yield figure("peers_cpu", one.cores, "s", launcher=name, **params)
