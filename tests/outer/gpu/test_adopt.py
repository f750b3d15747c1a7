"""What real Slurm says of a job's GPUs, taken over as a partition of just those."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.outer.gpu.test_configure import bare_lab, configured, inventory
from tests.outer.lab import release
from tests.whole.conftest import Pod

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

ADOPT = (sys.executable, "-m", "podwright.cli.podwright", "slurm", "adopt")
CLUSTER = """\
name = "row"
family = "gpu4"
topology = "switched"
simulated = true
"""


@pytest.mark.parametrize("name", ["oldest", "middle"])
def test_a_real_grant_is_taken_over(name: str, tmp_path: Path) -> None:
    lab = bare_lab(release(name))
    configured(lab, inventory(lab))
    file = tmp_path / "row.toml"
    domains = [f'[[link_domains]]\nname = "d{n}"\nmachines = ["n{n}"]\n' for n in range(1, 5)]
    file.write_text(CLUSTER + "\n".join(domains))
    pod = Pod(tmp_path, "--cluster-file", str(file))
    pod.start()
    try:
        with lab:
            environ = {**lab.environment(), "PODWRIGHT_SOCKET": str(pod.socket)}
            if lab.prefix():  # this release has its commands in a root of its own
                tools = tmp_path / "tools"
                tools.mkdir()
                words = shlex.join([*lab.prefix(), "scontrol"])
                (tools / "scontrol").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
                (tools / "scontrol").chmod(0o755)
                environ["PATH"] = f"{tools}:{environ['PATH']}"

            def adopt(job: int, *words: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [*ADOPT, str(job), *words],
                    env={**os.environ, **environ},
                    capture_output=True,
                    text=True,
                    check=False,
                )

            first = lab.submit("sleep 600", "-w", "n1", "--gpus-per-node=1")
            lab.wait_state(first, "RUNNING")
            wide = lab.submit("sleep 600", "-w", "n[1-2]", "--gpus-per-node=a100:2")
            lab.wait_state(wide, "RUNNING")
            made = [json.loads(adopt(job, "--json").stdout) for job in (first, wide)]
            assert [len(one["gpus"]) for one in made] == [1, 4]
            assert made[0]["owner"] == "root"
            taken = [gpu for one in made for gpu in one["gpus"]]
            assert len(set(taken)) == 5
            assert {gpu.partition(":")[0] for gpu in made[1]["gpus"]} == {"n1", "n2"}
            held = pod.good("vipu", "list", "devices")
            assert held.count(f"job{wide}") == 4
            assert adopt(wide, "--release").returncode == 0
            assert set(pod.partitions()) == {f"job{first}"}
            lab.ok("scancel", str(first), str(wide))
            lab.wait_over(first, wide)
            gone = adopt(wide)
            assert gone.returncode != 0
            assert "has no GPUs" in gone.stderr
    finally:
        pod.stop()
