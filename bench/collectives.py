"""allReduceSum of popdist beside MPI's Allreduce and gloo's all_reduce, in turns in one launch.

Four instances on this machine, over MPI and over popdist's own links. Processor seconds of all
instances for one call, medians; and their ratio to the peer's. gloo is measured where this Python
has torch, and otherwise standard error says that it is left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import Figures, figure

BIN = Path(sys.executable).parent
INSTANCES, ROUNDS = 4, 9
SIZES = (64 << 10, 64 << 20)
#: Prints the processor seconds of each call in this instance, by library, as JSON.
_PROGRAM = """
import json, os, sys, time
import numpy as np
import popdist
popdist.init()
values = np.full(int(sys.argv[1]) // 4, 1.5, np.float32)
calls = {"popdist": lambda: popdist.allReduceSum(values)}
from mpi4py import MPI
total = np.empty_like(values)
calls["MPI"] = lambda: MPI.COMM_WORLD.Allreduce(values, total)
try:
    import torch
    import popdist.torch
    torch.set_num_threads(1)
    popdist.torch.init_process_group("gloo")
    tensor = torch.from_numpy(values.copy())
    calls["gloo"] = lambda: torch.distributed.all_reduce(tensor)
except ModuleNotFoundError:
    pass
took = {name: [] for name in calls}
for _ in range(int(sys.argv[2]) + 1):
    for name, call in calls.items():
        MPI.COMM_WORLD.Barrier()
        began = time.process_time()
        call()
        took[name].append(time.process_time() - began)
os.write(1, (json.dumps({name: times[1:] for name, times in took.items()}) + "\\n").encode())
"""


def run() -> Figures:
    """The figures of each size and of both ways between instances."""
    for size in SIZES:
        for backend in ("mpi", "tcp"):
            medians = _medians(size, backend)
            if "gloo" not in medians:
                print("bench: no gloo: this Python has no torch", file=sys.stderr)
            told: dict[str, Any] = {
                "bytes": size,
                "instances": INSTANCES,
                "backend": backend,
                "rounds": ROUNDS,
            }
            for name, seconds in medians.items():
                yield figure("collectives.cpu", seconds * 1e3, "ms", library=name, **told)
                if name != "popdist":
                    ratio = medians["popdist"] / seconds
                    yield figure("collectives.ratio", ratio, "", to=name, **told)


def _medians(size: int, backend: str) -> dict[str, float]:
    """Processor seconds of one call in all instances, by library."""
    command = [str(BIN / "poprun"), "--offline-mode=yes", f"--num-replicas={INSTANCES}"]
    command += [f"--num-instances={INSTANCES}", sys.executable, "-c", _PROGRAM]
    done = subprocess.run(
        [*command, str(size), str(ROUNDS)],
        env={**os.environ, "POPDIST_BACKEND": backend, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    instances = [json.loads(line.partition(": ")[2]) for line in done.stdout.splitlines()]
    return {
        name: statistics.median(map(sum, zip(*(times[name] for times in instances), strict=True)))
        for name in instances[0]
    }
