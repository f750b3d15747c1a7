"""Twenty simulated nodes under real Slurm that check themselves: each has a stand-in's GPUs.

The hook that `configure --gpus --health` wrote calls a `podwright` that belongs to the lab: it runs
on this machine, with the node's own GPUs, whichever release slurmd is of.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.outer.gpu.truth import make_gpus
from tests.outer.lab import Release, SlurmLab, poll

GPUS = 'gpus = 2\nname = "NVIDIA A100-SXM4-80GB"\n'
RESET = 'recovery = "reset"'
_OFF = '[checks.adapters]\nlevel = "off"\n[checks.kernel]\nlevel = "off"\n'


class IllLab(SlurmLab):
    """`with IllLab(release) as lab: lab.gpu("n3", RESET); lab.check()`."""

    def __init__(
        self,
        release: Release,
        nodes: int = 20,
        act: str = "drain",
        *,
        conf: Mapping[str, str] | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        super().__init__(
            nodes=nodes,
            cpus=2,
            release=release,
            conf={"SlurmdTimeout": "300", "HealthCheckInterval": "3600", **(conf or {})},
            lines=lines,
        )
        make_gpus(self, 2)
        (self.folder / "gpus").mkdir()
        for name in self.nodes:
            self.gpu(name)
        self.settings_of("")
        self._write_podwright()
        self._configure(act)

    def _write_podwright(self) -> None:
        """`podwright` on the nodes, and Slurm's commands as that one finds them."""
        for name in ("sinfo", "scontrol"):
            line = shlex.join([*self.prefix(), f"/usr/bin/{name}"])
            self.write(f"bin/{name}", f'#!/bin/sh\nexec {line} "$@"\n')
        own = shlex.join([sys.executable, "-m", "podwright.cli.podwright"])
        self.write(
            "bin/podwright",
            "#!/bin/sh\n"
            f'export PODWRIGHT_STANDIN_NVML="{self.folder}/gpus/$SLURMD_NODENAME.toml"\n'
            f'export PATH="{self.folder}/bin:$PATH" PODWRIGHT_LAB="{self.folder}"\n'
            f'exec nsenter -t {os.getpid()} -m -r -- {own} "$@" '
            f"--config={self.folder}/health.toml --state={self.folder}/health\n",
        )

    def _configure(self, act: str) -> None:
        node = {"sockets": 1, "cores_per_socket": 2, "names": f"n[1-{len(self.nodes)}]"}
        gpus = {"type": "a100", "count": 2, "memory": 80, "files": f"{self.folder}/gpu[0-1]"}
        tree = {"nodes": [{**node, "gpus": gpus}]}
        file = self.folder / "inventory.json"
        file.write_text(json.dumps(tree))
        self.configure("--gpus", str(file), f"--health={act}")

    def configure(self, *words: str) -> str:
        """`podwright slurm configure` on this lab's files, written."""
        done = subprocess.run(
            [sys.executable, "-m", "podwright.cli.podwright", "slurm", "configure", *words]
            + [f"--slurm-conf={self.folder}/slurm.conf", f"--folder={self.folder}/hooks"]
            + [f"--node-podwright={self.folder}/bin/podwright", "--topology=none"]
            + (["--write"] if "--undo" not in words else [])
            + ["--slurm-version", "{}.{:02}".format(*self.release.version)],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    # What nodes have

    def gpu(self, name: str, fault: str = "") -> None:
        """A node's GPUs, the second one with a fault."""
        text = GPUS + (f"[[gpu]]\nindex = 1\n{fault}\n" if fault else "")
        self._put(f"gpus/{name}.toml", text)

    def all_gpus(self, fault: str = "") -> None:
        for name in self.nodes:
            self.gpu(name, fault)

    def settings_of(self, text: str) -> None:
        self._put("health.toml", _OFF + text)

    def _put(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.new"
        path.write_text(text)
        path.rename(self.folder / name)

    # Checks

    def check(self, *names: str) -> dict[str, str]:
        """All nodes check themselves in the same moment, as slurmd would; what each ended with."""
        running = {
            name: subprocess.Popen(
                [str(self.folder / "hooks" / "node-health")],
                env={"SLURMD_NODENAME": name},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for name in names or self.nodes
        }
        return {
            name: process.communicate(timeout=300)[0].splitlines()[-1]
            for name, process in running.items()
        }

    def drained(self) -> dict[str, str]:
        """The reasons of drained nodes."""
        rows = self.ok("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
        words = [row.split("|", 2) for row in rows]
        return {name: reason for name, state, reason in words if "drain" in state}


def wait_idle(lab: IllLab) -> None:
    """Until no node is drained or busy."""
    poll("all nodes idle", lambda: set(lab.ok("sinfo", "-h", "-o", "%T").split()) == {"idle"})
