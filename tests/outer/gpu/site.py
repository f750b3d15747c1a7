"""A site for job scripts: hosts with two device files each that stand for GPUs, and its inventory.

What the scripts start comes from a Python environment on a path that all hosts have.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from podwright.gpu.configure import make_inventory
from podwright.gpu.templates import TemplateOptions, of_inventory, render
from tests.outer.lab import HostsLab, Release, SlurmLab, poll

GPUS = 2
_NODES = {
    "names": "n[1-2]",
    "sockets": 1,
    "cores_per_socket": 2,
    "gpus": {"type": "h100", "count": GPUS, "memory": 80},
    "nics": [{"interface": "eth0"}],
}


class ScriptSite:
    """`template` renders, `run` submits and waits."""

    def __init__(self, lab: SlurmLab, hosts: HostsLab) -> None:
        self.lab, self.hosts = lab, hosts
        self.bin = lab.folder / "bin"
        self.bin.mkdir()

    def template(self, name: str, wishes: TemplateOptions | None = None) -> str:
        wishes = wishes or TemplateOptions()
        fit = of_inventory(make_inventory({"nodes": [_NODES]}), wishes)
        return render(name, fit._replace(slurm_version=(22, 5)), wishes)

    def submit(self, text: str, *words: str, options: Sequence[str] = (), path: str = "") -> int:
        script = self.lab.write("out/job.sh", text)
        paths = ":".join(filter(None, [str(self.bin), path, self.lab.environment()["PATH"]]))
        done = self.lab.run(
            "sbatch", "--parsable", *options, str(script), *words, env={"PATH": paths}
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def run(
        self, text: str, *words: str, seconds: float = 120, path: str = ""
    ) -> tuple[str, int, str]:
        """A job's state and exit code at its end, and what it wrote."""
        job = self.submit(text, *words, path=path)
        found = self.lab.wait_over(job, seconds=seconds)[job]
        code = int(found.fields["ExitCode"].partition(":")[0])
        return found.state, code, self.output(f"*-{job}.out")

    def run_again(self, text: str, *words: str, path: str = "") -> tuple[str, str]:
        """A job of four ranks that is told to stop, by the signal that Slurm sends before its time
        is over, and runs a second time: its state at the end of that, and what it wrote.
        """
        job = self.submit(text, *words, path=path)
        poll("all ranks", lambda: self.output(f"*-{job}.out").count("begins") == 4, seconds=120)
        self.lab.ok("scancel", "--batch", "--signal=USR1", str(job))
        over = self.lab.wait(
            "the end of its second run",
            lambda jobs: jobs[job].over and jobs[job].fields["Restarts"] == "1",
            seconds=240,
        )
        return over[job].state, self.output(f"*-{job}.out")

    def output(self, pattern: str) -> str:
        files = sorted((self.lab.folder / "out").glob(pattern))
        return "".join(path.read_text() for path in files)

    def program(self, name: str, text: str) -> str:
        """A program on all hosts; its path."""
        return str(self.lab.write(f"out/{name}", text))

    def left(self, *words: str) -> list[str]:
        """Processes of such names that are left on the hosts."""
        found = []
        for name in self.hosts.names[1:]:
            lines = self.hosts.exec(name, "ps", "-eo", "args=").stdout.splitlines()
            found += [f"{name}: {line}" for line in lines if any(word in line for word in words)]
        return found


@contextmanager
def script_site(release: Release | None = None) -> Iterator[ScriptSite]:
    """The site, up."""
    with HostsLab(["ctl", "n1", "n2"]) as hosts:
        gres = f"AutoDetect=off\nName=gpu Type=h100 File=@LAB@/gpu[0-{GPUS - 1}]\n"
        lab = SlurmLab(
            cpus=2,
            conf={"GresTypes": "gpu"},
            files={"gres.conf": gres},
            node_extra=f"Gres=gpu:h100:{GPUS} Feature=gpumem80g",
            hosts=hosts,
            release=release,
        )
        for number in range(GPUS):
            os.mknod(lab.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(240, number))
        with lab:
            yield ScriptSite(lab, hosts)


#: What the scripts ask of torch and Accelerate, without their gigabytes: ranks as real ones start
#: and end them. The long ring runs torch itself.
_ERRORS = """
class Failure:
    def __init__(self, exitcode): self.exitcode = exitcode
class ChildFailedError(Exception):
    def __init__(self, exitcode): super().__init__("a rank failed"); self.code = exitcode
    def get_first_failure(self): return 0, Failure(self.code)
"""
_RUN = """
import os, signal, subprocess, sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
def start(nodes, each, node, command):
    ranks = []
    def stop(number, _):  # as torchrun: the ranks are told, and have time
        for rank in ranks: rank.send_signal(number)
        for rank in ranks: rank.wait()
        sys.exit(1)
    signal.signal(signal.SIGTERM, stop)
    for local in range(each):
        own = {"RANK": str(node * each + local), "LOCAL_RANK": str(local)}
        own["WORLD_SIZE"] = str(nodes * each)
        ranks.append(subprocess.Popen([sys.executable, *command], env={**os.environ, **own}))
    for rank in ranks:
        if rank.wait():
            for other in ranks: other.kill()
            raise ChildFailedError(rank.returncode)
def main():
    said = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
    command = sys.argv[1 + len(said):]
    start(int(said["--nnodes"]), int(said["--nproc-per-node"]),
          int(os.environ["SLURM_NODEID"]), command)
"""
_ACCELERATE = """
import sys
from torch.distributed.run import start
def main():
    words = sys.argv[2:]
    said = dict(zip(words[0:12:2], words[1:12:2]))
    assert sys.argv[1] == "launch" and "--main_process_ip" in said, sys.argv
    nodes, all_of_them = int(said["--num_machines"]), int(said["--num_processes"])
    start(nodes, all_of_them // nodes, int(said["--machine_rank"]), words[12:])
"""


def stand_ins(site: ScriptSite) -> None:
    """A `python` that finds stand-ins of torch's launcher and of Accelerate's."""
    modules = {
        "torch/distributed/elastic/multiprocessing/errors.py": _ERRORS,
        "torch/distributed/run.py": _RUN,
        "accelerate/commands/accelerate_cli.py": _ACCELERATE,
    }
    for name, text in modules.items():
        site.lab.write(f"standins/{name}", text)
    found = f"{site.lab.folder}/standins"
    executable(site.bin / "python", f'#!/bin/sh\nPYTHONPATH={found} exec /usr/bin/python3 "$@"\n')


def executable(path: Path, text: str) -> None:
    """Write a program."""
    path.write_text(text)
    path.chmod(0o755)
