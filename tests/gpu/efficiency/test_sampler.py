"""The sampler writes the GPUs' use, and ends with the process that it watches, however that
ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from podwright.gpu.efficiency import read_samples
from podwright.gpu.efficiency._sampler import _step_ranks, gpus_of_job
from podwright.hosts.gpus import Gpu
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE

NODE = "gpus = 4\nmemory = 81559\n"


def wait(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_samples_beside_a_command_and_ends_with_it(tmp_path: Path) -> None:
    described = tmp_path / "node.toml"
    described.write_text(NODE)
    folder = tmp_path / "samples"
    environ = {
        **os.environ,
        STANDIN_VARIABLE: str(described),
        "PODWRIGHT_SAMPLES": str(folder),
        "SLURM_JOB_ID": f"{os.getpid()}",
        "SLURMD_NODENAME": "n1",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "0",
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_JOB_GPUS": "1,2",
    }
    command = [sys.executable, "-m", "podwright.cli.podwright", "slurm", "sample", "--every=0.05"]
    process = subprocess.Popen([*command, "--", "sleep", "600"], env=environ)

    def seen() -> list[list[object]]:
        # The last one may be half there.
        every = [line for f in folder.glob("*") for line in f.read_text().splitlines(True)[1:]]
        lines = [json.loads(line) for line in every if line.endswith("\n")]
        return [gpu for line in lines for gpu in line["gpus"]]

    wait(lambda: folder.is_dir() and seen())
    load = f"[[gpu]]\nindex = 1\nload = 70\nprocesses = [{{ pid = {process.pid}, memory = 99 }}]\n"
    described.with_suffix(".new").write_text(NODE + load)
    described.with_suffix(".new").rename(described)
    wait(lambda: [1, 70, 99, [["0", 0]]] in seen())
    second = subprocess.run([*command, "--", "true"], env=environ, check=False)
    assert second.returncode == 0
    lines = [len(path.read_text().splitlines()) for path in folder.glob("*")]
    assert sum(count > 1 for count in lines) == 1  # one sampler for a job on a node
    process.send_signal(signal.SIGKILL)
    process.wait()
    mark = f"PODWRIGHT_SAMPLES={folder}".encode()

    def left() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    wait(lambda: not left())
    sampled = read_samples(folder)
    assert sampled is not None
    assert [use.number for use in sampled.uses] == [1, 2]
    first, other = sampled.uses
    assert (first.peak, first.most, first.had_process, other.used) == (70, 99 << 20, True, False)
    assert sampled.idle_ranks == (("0", 1),)


def test_the_gpus_of_a_job_or_step_are_known_by_slurms_variables() -> None:
    gpus = [
        Gpu(n, "nvidia", f"GPU-{n}", "H100", "h100", f"0000:{n:02x}:00.0", 80000 << 20)
        for n in range(4)
    ]
    assert [gpu.index for gpu in gpus_of_job(gpus, {"SLURM_JOB_GPUS": "1,3"})] == [1, 3]
    assert [gpu.index for gpu in gpus_of_job(gpus, {"SLURM_STEP_GPUS": "2"})] == [2]
    assert [gpu.index for gpu in gpus_of_job(gpus, {"CUDA_VISIBLE_DEVICES": "0,1"})] == [0, 1]
    # A job that is confined by cgroups sees its own alone, whatever their numbers elsewhere are.
    assert [gpu.index for gpu in gpus_of_job(gpus[:2], {"SLURM_JOB_GPUS": "6,7"})] == [0, 1]


def test_a_step_tells_which_ranks_its_node_has() -> None:
    environ = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "8", "SLURM_NODEID": "2"}
    assert _step_ranks({**environ, "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, "0") == ["0", 8, 3]
    assert _step_ranks({}, "batch") == ["", 0, 0]
