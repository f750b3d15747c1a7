"""Slurm's own accounting of GPUs, by a real slurmd and Debian's gpu/nvml plugin.

The plugin is a package of Debian's section `contrib`, which not every mirror has; so this is asked
in the long ring only. What it printed is read in `tests/gpu/efficiency/test_accounted.py`.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outer.lab import Accounts, poll, release
from tests.outer.lab._release import debian_mirror

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
PACKAGE = "pool/contrib/s/slurm-wlm-contrib/slurm-wlm-nvml-plugin_24.11.5-2_amd64.deb"
#: Two tasks: one at 80 per cent of GPU 0 with 1,080 MiB, the other at 30 of GPU 1 with 1,030.
JOB = """\
rm -f use.*
srun --ntasks=2 sh -c 'use=80; [ $SLURM_PROCID = 0 ] || use=30
echo "$SLURM_PROCID $$ $use $((1000 + use))" >new.$SLURM_PROCID
mv new.$SLURM_PROCID use.$SLURM_PROCID
until [ -e use.0 ] && [ -e use.1 ]; do sleep 0.05; done
[ $SLURM_PROCID = 1 ] || { cat use.0 use.1 >new; mv new @USE@; }
sleep 8'
"""


class NvmlLab(Accounts):
    """One node of two GPUs that slurmd finds by itself."""

    def __init__(self) -> None:
        conf = {
            **self.accounts_conf(),
            "JobAcctGatherType": "jobacct_gather/linux",
            "JobAcctGatherFrequency": "task=1",
            "GresTypes": "gpu",
            "AccountingStorageTRES": "gres/gpu,gres/gpuutil,gres/gpumem",
            "PluginDir": "/usr/lib/x86_64-linux-gnu/slurm-wlm:@LAB@/plugins",
        }
        super().__init__(
            nodes=1,
            cpus=4,
            conf=conf,
            files={"gres.conf": "AutoDetect=nvml\n"},
            node_extra="Gres=gpu:2",
            release=release("middle"),
        )
        self._extra_env["LD_LIBRARY_PATH"] = str(self.folder / "lib")
        self.use = self.folder / "use"
        self._made: list[Path] = []
        (self.folder / "lib").mkdir()
        (self.folder / "plugins").mkdir()
        own = [f"-DUSE={json.dumps(str(self.use))}", "-DGPUS=2", "-fPIC", "-shared", "-w"]
        subprocess.run(
            ["gcc", *own, str(SOURCE), "-o", f"{self.folder}/lib/libnvidia-ml.so.1",
             "-Wl,-soname,libnvidia-ml.so.1"],
            check=True,
        )  # fmt: skip
        package = self.folder / "plugin.deb"
        with urllib.request.urlopen(f"{debian_mirror()}/{PACKAGE}", timeout=120) as answer:
            package.write_bytes(answer.read())
        subprocess.run(["dpkg-deb", "-x", str(package), str(self.folder / "deb")], check=True)
        (plugin,) = (self.folder / "deb").rglob("gpu_nvml.so")
        (self.folder / "plugins" / "gpu_nvml.so").write_bytes(plugin.read_bytes())
        for name in ("sacct", "scontrol", "sacctmgr"):
            line = shlex.join([*self.prefix(), f"/usr/bin/{name}"])
            self.write(f"tools/{name}", f'#!/bin/sh\nexec {line} "$@"\n')

    def start(self) -> None:
        self._start_munged()
        self.start_accounts()
        for number in range(2):  # the node's /dev is this machine's
            device = Path(f"/dev/nvidia{number}")
            if not device.exists():
                os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(240, number))
                self._made.append(device)
        self.start_daemon("slurmctld", clean=True)
        self.start_daemon("n1")
        self.wait_for_nodes()

    def stop(self) -> None:
        super().stop()
        while self._made:
            self._made.pop().unlink()

    def efficiency(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "podwright.cli.podwright", "slurm", "efficiency", *words],
            env={
                **self.environment(),
                "PATH": f"{self.folder}/tools:{self.environment()['PATH']}",
                "LD_LIBRARY_PATH": "",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def lab() -> Iterator[NvmlLab]:
    with NvmlLab() as started:
        yield started


def test_what_slurmd_itself_saw_of_gpus(lab: NvmlLab) -> None:
    job = lab.submit(JOB.replace("@USE@", str(lab.use)), "--gpus=2", "--ntasks=2")
    assert lab.wait_over(job, seconds=120)[job].state == "COMPLETED"
    found = poll(
        "its account",
        lambda: (one := lab.efficiency("--json", str(job)))["job"]["gpu_peak"] and one,
        seconds=60,
        every=1,
    )
    assert found["source"] == "accounting"
    assert (found["job"]["gpu_peak"], found["job"]["gpu_memory"]) == (80, 1080)
