"""What a sample of eight GPUs costs in processor time, on the sampler that steps of jobs start.

The GPUs are the stand-in's below NVIDIA's real bindings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import Figures, figure

SAMPLES = 2000
LIMIT = 5.0
NODE = 'gpus = 8\nname = "NVIDIA H100 80GB HBM3"\nmemory = 81559\nnvlinks = 18\n'
#: As the sampler itself does it, without the ten seconds in between.
_SAMPLER = """
import os, sys, time
from podwright.hosts.gpus import take_gpus
from podwright.gpu.efficiency import _sampler
found = take_gpus(os.environ)
ask = _sampler._gpu_sampler(found.gpus, found.libraries)
number = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
start = time.process_time()
for _ in range(int(sys.argv[2])):
    _sampler._write_json_line(number, {"t": round(time.time(), 2), "every": 10, "gpus": ask()})
print(1000 * (time.process_time() - start) / int(sys.argv[2]))
"""


def run() -> Figures:
    """Milliseconds of processor time for one sample."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.toml"
        held = "".join(
            f"[[gpu]]\nindex = {n}\nload = 90\nprocesses = [{{ pid = {os.getpid()} }}]\n"
            for n in range(8)
        )
        path.write_text(NODE + held)
        done = subprocess.run(
            [sys.executable, "-c", _SAMPLER, f"{folder}/samples", str(SAMPLES)],
            env={**os.environ, "PODWRIGHT_STANDIN_NVML": str(path)},
            capture_output=True,
            text=True,
            check=True,
        )
    yield figure(
        "gpu_sample", round(json.loads(done.stdout), 3), "ms", limit=LIMIT, gpus=8, samples=SAMPLES
    )
