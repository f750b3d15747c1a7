"""Real jobs on real Slurm with accounts, on GPUs whose use the job itself drives by a script."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outer.gpu.truth import make_gpus
from tests.outer.lab import Accounts, Release, poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

GPUS = 'gpus = 4\nname = "NVIDIA H100 80GB HBM3"\nmemory = 81559\n'
#: GPU 0 works at 80, then at 40 per cent; GPU 1 only at first; rank 2 and GPUs 2 and 3 do nothing.
JOB = """\
gpus() { printf '%s' "$1" > @NODE@.new && mv @NODE@.new @NODE@; }
one='gpus = 4\nmemory = 81559\n[[gpu]]\nindex = 0\nload = %s\nprocesses = [{ pid = %s }]\n'
two='[[gpu]]\nindex = 1\nload = %s\nprocesses = [{ pid = %s, memory = 40000 }]\n'
samples() { cat "$PODWRIGHT_SAMPLES"/*.jsonl 2>/dev/null | grep -c '"t"'; }
four_more() { until [ "$(samples)" -ge $(($1 + 4)) ]; do sleep 0.05; done; }
four_more 0
rm -f @OUT@/pid* @OUT@/over
srun --ntasks=3 sh -c 'echo $$ > @OUT@/pid.$SLURM_PROCID
until [ -e @OUT@/over ]; do sleep 0.2; done' &
while [ "$(cat @OUT@/pid.? 2>/dev/null | wc -l)" -lt 3 ]; do sleep 0.05; done
a=$(cat @OUT@/pid.0) b=$(cat @OUT@/pid.1)
gpus "$(printf "$one$two" 80 $a 100 $b)"
four_more "$(samples)"
gpus "$(printf "$one$two" 40 $a 0 $b)"
four_more "$(samples)"
touch @OUT@/over
wait
"""


class EfficiencyLab(Accounts):
    """One node of four GPUs, sampled each half second."""

    def __init__(self, slurm: Release) -> None:
        conf = {
            **self.accounts_conf(),
            "JobAcctGatherType": "jobacct_gather/linux",
            "JobAcctGatherFrequency": "1",
        }
        super().__init__(nodes=1, cpus=8, conf=conf, release=slurm)
        make_gpus(self, 4)
        self.gpus = self.folder / "n1.toml"
        own = shlex.join([sys.executable, "-m", "podwright.cli.podwright"])
        # The sampler is this machine's, and what it watches has the same number here.
        self.write(
            "bin/podwright",
            f"#!/bin/sh\nexport PODWRIGHT_STANDIN_NVML={self.gpus} PODWRIGHT_LAB={self.folder}\n"
            f'export PATH="{self.folder}/tools:$PATH"\n'
            f'exec nsenter -t {os.getpid()} -m -r --wd="$PWD" -- {own} "$@"\n',
        )
        for name in ("sacct", "scontrol"):
            line = shlex.join([*self.prefix(), f"/usr/bin/{name}"])
            self.write(f"tools/{name}", f'#!/bin/sh\nexec {line} "$@"\n')
        gpus = {"type": "h100", "count": 4, "memory": 80, "files": f"{self.folder}/gpu[0-3]"}
        node = {"names": "n1", "sockets": 1, "cores_per_socket": 8, "gpus": gpus}
        file = self.folder / "inventory.json"
        file.write_text(json.dumps({"nodes": [node]}))
        self.podwright(
            "slurm", "configure", "--gpus", str(file), "--efficiency=0.5", "--write",
            f"--slurm-conf={self.folder}/slurm.conf", f"--folder={self.folder}/hooks",
            f"--node-podwright={self.folder}/bin/podwright", "--topology=none",
            "--slurm-version={}.{:02}".format(*slurm.version),
        )  # fmt: skip

    def start(self) -> None:
        self._start_munged()
        self.start_accounts()
        self.start_daemon("slurmctld", clean=True)
        self.start_daemon("n1")
        self.wait_for_nodes()

    def podwright(self, *words: str) -> str:
        path = f"{self.folder}/tools:{self.environment()['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "podwright.cli.podwright", *words],
            env={**self.environment(), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def efficiency(self, *words: str) -> Any:
        return json.loads(self.podwright("slurm", "efficiency", "--json", *words))

    def run_job(self, *options: str) -> int:
        self.gpus.write_text(GPUS)
        script = JOB.replace("@NODE@", str(self.gpus)).replace("@OUT@", str(self.folder / "out"))
        job = self.submit(script, "--gpus-per-node=4", "--ntasks=3", "--mem=8G", *options)
        assert self.wait_over(job, seconds=120)[job].state == "COMPLETED"
        poll("its account", lambda: self.efficiency(str(job))["cores"] is not None, every=1)
        return job


@pytest.fixture(scope="module", params=["oldest", "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[EfficiencyLab]:
    with EfficiencyLab(release(request.param)) as started:
        yield started


def test_what_a_job_made_of_its_gpus(lab: EfficiencyLab) -> None:
    job = lab.run_job()
    found = lab.efficiency(str(job))
    assert found["source"] == "samples"
    assert (found["gpus_used"], found["every"]) == (2, 0.5)
    zero, one, two, three = found["uses"]
    assert [use["used"] if "used" in use else use["held"] for use in (zero, one, two, three)] == [
        *(True, True, False, False)
    ]
    # Every sample is what the script had set at that moment, or just before.
    raw = [
        gpu[1]
        for path in sorted((lab.folder / "out" / f"slurm-{job}.gpus").glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if '"t"' in line
        for gpu in json.loads(line)["gpus"]
        if gpu[0] == 0
    ]
    assert set(raw) == {0, 80, 40}
    assert raw == sorted(raw, key=[0, 80, 40].index)
    assert zero["samples"] == len(raw)
    assert zero["load"] == pytest.approx(sum(raw) / len(raw))
    assert (zero["peak"], one["peak"], one["most"]) == (80, 100, 40000)
    assert found["idle_start"] >= 1
    asked = [advice["ask"] for advice in found["advice"]]
    assert "--gpus-per-node=2" in asked
    assert any("2 of 4 GPUs were never used" in advice["text"] for advice in found["advice"])
    assert found["idle_ranks"] == [["0", 2]]
    assert 0 <= found["cores"] < 3
    assert found["memory"] is not None
    text = lab.podwright("slurm", "efficiency", str(job))
    assert "- 2 of 4 GPUs were never used: --gpus-per-node=2." in text
    svg = lab.podwright("slurm", "efficiency", str(job), "--svg", "-")
    assert svg.count("<polyline") == 4
    assert lab.podwright("slurm", "efficiency", str(job), "--line").startswith("GPUs ")
    none_left(lab, job)


def none_left(lab: EfficiencyLab, job: int) -> None:
    """No sampler outlives its step."""
    mark = f"slurm-{job}.gpus".encode()

    def alive() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes() and str(lab.folder).encode() in path.read_bytes():
                    found.append(path.parent.name)
            except OSError:
                continue
        return found

    poll("samplers are gone", lambda: not alive(), seconds=10)


def test_a_job_without_gpus_is_not_sampled(lab: EfficiencyLab) -> None:
    job = lab.submit("true", "--gpus=0", "--ntasks=1")
    lab.wait_over(job)
    poll("its account", lambda: lab.efficiency(str(job))["job"]["end"], every=0.5)
    assert not (lab.folder / "out" / f"slurm-{job}.gpus").exists()
    assert lab.efficiency(str(job))["source"] == "nothing"
