"""A real Slurm laid out as a random site, and what it does with one request after the other.

A job writes down what it holds (`scontrol -d show job`), and its tasks what each of them sees; so a
request takes a fraction of a second where nothing waits.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.outer.gpu.any_site import AnySite
from tests.outer.gpu.truth import make_gpus
from tests.outer.lab import ALICE, LabError, Place, Release, SlurmLab, poll

_PROBE = (
    'echo "@$SLURM_PROCID $SLURM_LOCALID $SLURMD_NODENAME '
    '[${CUDA_VISIBLE_DEVICES-unset}] <$SLURM_CPU_BIND_LIST>@"'
)
_SCRIPT = f"""#!/bin/sh
scontrol -o -d show job $SLURM_JOB_ID > @OUT@.part
mv @OUT@.part @OUT@.job
srun sh -c '{_PROBE}' > @OUT@.tasks 2>&1
echo $? > @OUT@.rc
"""
_AGAIN = re.compile(r"--partition=\w+,|--prefer")
_ALIVE = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "COMPLETED")
_TASK = re.compile(r"@(\d+) (\d+) (\S+) \[(.*?)\] <(.*?)>@")
_NODES = re.compile(r" NodeList=(\S+)")
_HELD = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")


class AnyLab(SlurmLab):
    """`with AnyLab(site) as lab: lab.outcome("--gpus=4")`."""

    def __init__(self, site: AnySite, release: Release | None = None) -> None:
        self.site = site
        self._count = 0
        files = {"gres.conf": site.gres_conf()}
        if site.topology:
            files["topology.conf"] = site.topology
        super().__init__(
            nodes=len(site.nodes),
            conf=site.settings,
            lines=[self._known(line, release) for line in site.partitions],
            files=files,
            release=release,
        )
        make_gpus(self, 8)

    @staticmethod
    def _known(line: str, release: Release | None) -> str:
        """A partition without what came later."""
        old = release is not None and release.name == "oldest"
        return re.sub(r" MaxCPUsPerSocket=\d+", "", line) if old else line

    def _spawn(self, name: str, place: Place, argv: Sequence[str]) -> None:
        """A slurmd that binds tasks finds all the cores that its node is said to have."""
        if argv[0] == "slurmd" and "TaskPlugin" in self.site.settings:
            kind, library = self.site.nodes[name], self.folder / "affinity.so"
            if not library.exists():
                source = str(files("podwright.slurm.twin").joinpath("affinity.c"))
                subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
                (self.folder / "affinity").mkdir()
            argv = [
                "env",
                f"HWLOC_SYNTHETIC=pack:{kind.sockets} core:{kind.cores} pu:{kind.threads}",
                f"LD_PRELOAD={library}",
                f"PODWRIGHT_TWIN_AFFINITY={self.folder}/affinity",
                *argv,
            ]
        super()._spawn(name, place, argv)

    def wait_for_nodes(self, state: str = "idle", *, seconds: float = 30.0) -> None:
        """All nodes are there; then those that the site drains are drained."""
        super().wait_for_nodes(state, seconds=seconds)
        for name in self.site.drained:
            self.ok("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=drained")

    def write_conf(self) -> None:
        """As every lab's, but each node with a line of its own."""
        super().write_conf()
        path = self.folder / "slurm.conf"
        lines = []
        for line in path.read_text().splitlines():
            found = re.match(r"NodeName=(\S+) (.*) CPUs=\d+ RealMemory=\d+ ", line)
            if found:
                name = found[1]
                line = f"NodeName={name} {found[2]} {self.site.nodes[name].line()} State=UNKNOWN"
            lines.append(line)
        path.write_text("\n".join(lines) + "\n")

    def shown(self) -> dict[str, str]:
        """What a reader of this site may read."""
        return {
            "config": self.ok("scontrol", "show", "config"),
            "nodes": self.ok("scontrol", "--oneliner", "show", "node"),
            "partitions": self.ok("scontrol", "--oneliner", "show", "partition"),
            "gres.conf": self.site.gres_conf(),
            "topology.conf": self.site.topology,
        }

    def outcome(self, options: str, *, patience: float = 300) -> dict[str, Any]:
        """What Slurm does: {"stage": submit | waits | step | hangs | runs | dies, "nodes": …}."""
        self._count += 1
        out = self.folder / "out" / f"r{self._count}"
        done = self.run(
            "sbatch", "--parsable", "--output=/dev/null", *shlex.split(options),
            stdin=_SCRIPT.replace("@OUT@", str(out)), user=ALICE,
        )  # fmt: skip
        if self._dead():
            return {"stage": "dies"}
        if done.returncode != 0:
            return {"stage": "submit", "said": done.stderr.strip().splitlines()[-1:]}
        job = done.stdout.strip().partition(";")[0]
        try:
            again = bool(_AGAIN.search(options))
            return self._watch(job, out, time.monotonic() + patience, again=again)
        finally:
            if not self._dead():
                self._end(job)

    def alone(
        self, options: str, command: str = "srun", *, patience: float = 60
    ) -> list[tuple[str, str, list[int]]]:
        """The tasks of an srun that is no part of a job, or of one inside of salloc: node, GPUs,
        CPUs; none where it fails, or has not started after so many seconds."""
        inner = [] if command == "srun" else ["srun"]
        argv = [command, *shlex.split(options), *inner, "sh", "-c", _PROBE]
        try:
            said = self.run(*argv, user=ALICE, timeout=patience).stdout
        except LabError:
            said = ""
        self.run("scancel", f"--user={ALICE}")
        self._wait_for_idle()
        return _tasks(said)

    def _dead(self) -> bool:
        """Whether this request ended slurmctld itself, as some do; then another one starts."""
        if self._daemons["slurmctld"].poll() is None:
            return False
        self.start_daemon("slurmctld", clean=True)
        self.wait_for_nodes()
        return True

    def _watch(self, job: str, out: Path, deadline: float, *, again: bool) -> dict[str, Any]:
        """again: what waits at first may start in another partition, or on other nodes."""
        pending = 0.0
        over = out.with_suffix(".rc")
        tasks = out.with_suffix(".tasks")
        while time.monotonic() < deadline:
            if self._dead():
                return {"stage": "dies"}
            if over.exists():
                held = _held(out.with_suffix(".job").read_text())
                said = tasks.read_text()
                seen = _tasks(said)
                if not seen:
                    last = [line for line in said.splitlines() if "rror" in line][:1]
                    return {"stage": "step", "nodes": held, "said": last}
                return {"stage": "runs", "nodes": held, "tasks": seen}
            if tasks.exists() and "retrying" in tasks.read_text():
                held = _held(out.with_suffix(".job").read_text())
                return {"stage": "hangs", "nodes": held}
            if not out.with_suffix(".job").exists():
                text = self.run("scontrol", "-o", "show", "job", job).stdout
                state = re.search(r"JobState=(\S+) Reason=(\S+)", text)
                if state and state[1] == "PENDING" and state[2] != "None":
                    pending = pending or time.monotonic()
                    late = time.monotonic() > pending + 30  # no look of backfill's for so long
                    first = state[2] == "Priority"  # which one with --prefer may keep for good
                    if late or not (first or (again and "Scheduler=Backfill" not in text)):
                        return {"stage": "waits", "said": [state[2]]}
                if state and state[1] not in _ALIVE:
                    return {"stage": "ends", "said": [state[1], state[2]]}
            time.sleep(0.01)
        raise LabError(f"job {job} neither starts nor ends")

    def _end(self, job: str) -> None:
        self.run("scancel", job)
        self._wait_for_idle()

    def _wait_for_idle(self) -> None:
        def idle() -> bool:
            done = self.run("sinfo", "-h", "-N", "-o", "%t").stdout.split()
            return bool(done) and set(done) <= {"idle", "drain"}

        poll("idle nodes", idle, seconds=120, every=0.02)


def _tasks(said: str) -> list[tuple[str, str, list[int]]]:
    """Node, GPUs and CPUs of each task by rank, out of what they printed."""
    found = sorted(
        (int(rank), node, gpus, _bound(masks, int(local)))
        for rank, local, node, gpus, masks in _TASK.findall(said)
    )
    return [task[1:] for task in found]


def _bound(masks: str, local: int) -> list[int]:
    """The CPUs of a task, out of the masks of all tasks of its node."""
    if not masks:
        return []
    each = masks.split(",")
    mask = int(each[local % len(each)], 16)
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


def _held(text: str) -> dict[str, dict[str, Any]]:
    """Cores, memory and GRES by node, out of `scontrol -d show job`.

    It leaves out the last nodes where the job holds no core.
    """
    nodes = _NODES.search(text)
    found: dict[str, dict[str, Any]] = {
        name: {"cpus": [], "mem": 0, "gres": ""} for name in _names(nodes[1] if nodes else "")
    }
    for names, cpus, memory, gres in _HELD.findall(text):
        for name in _names(names):
            found[name] = {"cpus": _numbers(cpus), "mem": int(memory), "gres": gres}
    return found


def _names(text: str) -> list[str]:
    """n1 and n3 of `n[1,3]`."""
    found = re.fullmatch(r"n\[(.*)\]", text)
    return [f"n{n}" for n in _numbers(found[1])] if found else [n for n in text.split(",") if n]


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


def as_line(options: str, outcome: dict[str, Any]) -> str:
    """A line of a record."""
    return json.dumps({"options": options, **outcome}, sort_keys=True)
