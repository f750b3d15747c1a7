"""A real Slurm cluster for a test: N slurmd on this machine, or one on each host of a HostsLab.

Daemons run in the foreground as children, so that a test can kill one by name and start it again;
every lab has its own MUNGE daemon, key and socket.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.ports import free_ports

from . import _conf
from ._cgroups import CgroupTurn
from ._folder import LabError, end_processes, new_folder, poll, remove, what_runs
from ._hosts import HostsLab
from ._places import Here, HostsRoot, Place, Root, as_user, need, run
from ._release import Release

_OVER = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "BOOT_FAIL",
    "PREEMPTED",
}


@dataclass(frozen=True)
class Job:
    """What `scontrol show job` says, field by field, in Slurm's own words."""

    fields: Mapping[str, str]

    @property
    def id(self) -> int:
        return int(self.fields["JobId"])

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    @property
    def reason(self) -> str:
        return self.fields["Reason"]

    @property
    def over(self) -> bool:
        return self.state in _OVER


class SlurmLab:
    """`with SlurmLab(nodes=4, conf={...}) as lab: lab.submit(...)`.

    `conf` replaces or adds settings of slurm.conf (the value "" takes one out); `lines` are added
    as they are; `files` are written beside it, `@LAB@` in both standing for the lab's folder, and
    those that begin with "#!" are made executable. `release` is whose Slurm it is (this machine's
    own where it is not said), `user` who its slurmctld runs as, and so its hooks. `hosts` puts
    slurmctld on the lab's first host and a slurmd on each other; with `controllers` a slurmctld on
    each of so many: the others are daemons "slurmctld@HOST". `controller` is where commands run.
    """

    def __init__(
        self,
        *,
        nodes: int = 4,
        cpus: int = 32,
        conf: Mapping[str, str] | None = None,
        lines: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        node_extra: str = "",
        release: Release | None = None,
        user: str = "root",
        hosts: HostsLab | None = None,
        controllers: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> None:
        need("slurmctld")
        need("munged")
        self.folder = new_folder()
        self._hosts = hosts
        self.release = release or Release("oldest", None)
        self.user = user
        self._on_hosts = self.release.root if hosts else None
        self._roots: dict[tuple[str, int], Place] = {}
        root = self.release.root
        self._root = Root(root, self.folder) if root and not hosts else None
        self._here: Place = self._root or Here()
        if hosts:
            self.controller, names = hosts.names[0], hosts.names[controllers:]
            lines = [*(f"SlurmctldHost={name}" for name in hosts.names[1:controllers]), *lines]
        else:
            self.controller = socket.gethostname().partition(".")[0]
            names = tuple(f"n{k}" for k in range(1, nodes + 1))
        ports = free_ports(len(names) + 1)
        self.nodes = dict(zip(names, ports[1:], strict=True))
        at = self.controller if hosts else f"{self.controller}(127.0.0.1)"
        settings = _conf.base(self.folder, at, ports[0], user=user, nodes_alone=hosts is not None)
        for key, value in (conf or {}).items():
            settings[key] = self._filled(value)
        self.settings = {key: value for key, value in settings.items() if value}
        self._cpus, self._node_extra = cpus, node_extra
        self._lines = [self._filled(line) for line in lines]
        self._extra_env = dict(env or {})
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._cgroups: CgroupTurn | None = None
        for name in ("state", "spool", "log"):
            (self.folder / name).mkdir()
        for name in ("state", "log"):
            shutil.chown(self.folder / name, user)
        self.write("plugstack.conf", "")
        self.write_conf()
        for name, content in (files or {}).items():
            self.write(name, content)

    # Files

    def write(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._filled(content))
        path.chmod(0o755 if content.startswith("#!") else 0o644)
        return path

    def write_conf(self) -> None:
        """Writes slurm.conf from `settings`, which a test may change before it reconfigures."""
        whole = _conf.text(
            self.settings,
            self.nodes,
            cpus=self._cpus,
            node_extra=self._node_extra,
            address=None if self._hosts else "127.0.0.1",
            lines=self._lines,
        )
        self.write("slurm.conf", whole)

    def log(self, daemon: str = "slurmctld") -> str:
        name = daemon if daemon == "slurmctld" else f"slurmd.{daemon}"
        path = self.folder / "log" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # Life

    def start(self) -> None:
        if (self.folder / "cgroup.conf").exists():
            self._cgroups = CgroupTurn(self.nodes)
        self._start_munged()
        self.start_daemon("slurmctld", clean=True)
        for name in self.nodes:
            self.start_daemon(name)
        self.wait_for_nodes()

    def stop(self) -> None:
        # Steps first, else a slurmstepd would sit out its KillWait.
        end_processes(self.folder)
        for daemon in self._daemons.values():
            daemon.wait()
        self._daemons.clear()
        if self._cgroups:
            self._cgroups.end()
            self._cgroups = None
        if self._root:
            self._root.close()
        remove(self.folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_daemon(self, name: str, *, clean: bool = False) -> None:
        """Starts a slurmctld or the slurmd of a node; `clean` forgets the controller's past."""
        if name.startswith("slurmctld"):
            argv = as_user(["slurmctld", "-D", *(["-c"] if clean else [])], self.user)
        else:
            (self.folder / "spool" / name).mkdir(exist_ok=True)
            argv = ["slurmd", "-D", "-N", name]
        self._spawn(name, self._place(name), argv)

    def kill_daemon(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        daemon = self._daemons.pop(name)
        inner = self._inner_pid(daemon.pid, _command(name))
        os.kill(inner, how)
        daemon.wait()

    def daemon_pid(self, name: str) -> int:
        return self._inner_pid(self._daemons[name].pid, _command(name))

    def wait_for_nodes(self, state: str = "idle", *, seconds: float = 30.0) -> None:
        def ready() -> bool:
            # A node has a line in each of its partitions.
            done = self.run("sinfo", "-h", "-N", "-o", "%N %t", timeout=300)
            return set(done.stdout.splitlines()) == {f"{name} {state}" for name in self.nodes}

        try:
            poll(f"nodes {state}", ready, seconds=seconds)
        except LabError as error:
            raise LabError(f"{error}\n{self.log()[-3000:]}") from error

    # Commands

    def run(
        self,
        *argv: str,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout: float = 300.0,
        node: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A command where the controller is (or on `node`), in the lab's output folder."""
        place = self._place(node or "slurmctld")
        full = {**self.environment(), **(env or {})}
        full_argv = ["env", "-C", f"{self.folder}/out", *argv]
        return run(place, full_argv, user=user, env=full, stdin=stdin, timeout=timeout)

    def prefix(self) -> list[str]:
        """What a process outside must put before a Slurm command to reach this lab's release."""
        return ["chroot", str(self._on_hosts)] if self._on_hosts else self._here.wrap([])

    def popen(self, *argv: str, user: str | None = None) -> subprocess.Popen[str]:
        """A command that goes on while the test does something else."""
        full = as_user(["env", "-C", f"{self.folder}/out", *argv], user)
        return subprocess.Popen(
            self._place("slurmctld").wrap(full),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ok(self, *argv: str, user: str | None = None, stdin: str | None = None) -> str:
        """The command's output. Raises LabError with what it said, where it failed."""
        done = self.run(*argv, user=user, stdin=stdin)
        if done.returncode != 0:
            said = done.stderr or done.stdout
            raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
        return done.stdout

    def submit(self, script: str, *options: str, user: str | None = None) -> int:
        """Submits a batch script (a shebang is added where it has none); answers the job's id."""
        if not script.startswith("#!"):
            script = f"#!/bin/sh\n{script}\n"
        return int(
            self.ok("sbatch", "--parsable", *options, user=user, stdin=script).partition(";")[0]
        )

    def jobs(self) -> dict[int, Job]:
        """Every job that slurmctld still knows, components of heterogeneous jobs included."""
        text = self.ok("scontrol", "--oneliner", "show", "jobs")
        found = {}
        for line in text.splitlines():
            if line.startswith("JobId="):
                job = _parse(line)
                found[job.id] = job
        return found

    def job(self, job: int | str) -> Job:
        text = self.ok("scontrol", "--oneliner", "show", "job", str(job))
        return _parse(text.splitlines()[0])

    def wait(
        self, what: str, probe: Callable[[Mapping[int, Job]], object], *, seconds: float = 60.0
    ) -> dict[int, Job]:
        """Polls all jobs until `probe` of them is true. Where it never is, says what runs."""

        def there() -> list[dict[int, Job]]:
            jobs = self.jobs()
            return [jobs] if probe(jobs) else []

        try:
            return poll(what, there, seconds=seconds, every=0.05)[0]
        except LabError as error:
            listed = [f"job {n} {j.state} {j.reason}\n" for n, j in self.jobs().items()][-20:]
            raise LabError(f"{error}\n{''.join(listed)}{what_runs(self.folder)}") from error

    def wait_state(self, job: int, *states: str, seconds: float = 60.0) -> Job:
        """Polls until the job is in one of the states. Fails at once when it is over instead."""
        what = f"job {job} {' or '.join(states)}"

        def there() -> Job | None:
            now = self.job(job)
            if now.over and now.state not in states:
                raise LabError(f"{what}: it is {now.state} ({now.reason})")
            return now if now.state in states else None

        return poll(what, there, seconds=seconds)

    def wait_over(self, *jobs: int, seconds: float = 60.0) -> dict[int, Job]:
        return self.wait(
            f"end of jobs {jobs}", lambda now: all(now[job].over for job in jobs), seconds=seconds
        )

    def start_again(self, job: int) -> None:
        """A requeued job is released and starts, without the wait that Slurm has it sit out.

        Never in the second of its last end: a node would take its new credential for the revoked
        one, and Slurm ends the job as FAILED.
        """
        passing = ("COMPLETING", "CONFIGURING")
        self.wait("its end on its nodes", lambda jobs: jobs[job].state not in passing)
        ended = int(time.time())
        poll("a later second", lambda: int(time.time()) > ended)
        # By now it may have begun by itself.
        self.run("scontrol", "release", str(job))
        self.run("scontrol", "update", f"jobid={job}", "starttime=now")

    def environment(self) -> dict[str, str]:
        return {
            "SLURM_CONF": f"{self.folder}/slurm.conf",
            "PODWRIGHT_LAB": str(self.folder),
            "PATH": self.release.path,
            "LANG": "C.UTF-8",
            "HOME": "/",
            **self._extra_env,
        }

    # Inside

    def _filled(self, content: str) -> str:
        return content.replace("@LAB@", str(self.folder))

    def _place(self, name: str) -> Place:
        if not self._hosts:
            return self._here
        host = self.controller if name == "slurmctld" else name.removeprefix("slurmctld@")
        inside = self._hosts.place(host)
        if not self._on_hosts:
            return inside
        boot = (host, self._hosts.first_process(host))
        if boot not in self._roots:
            self._roots[boot] = HostsRoot(self._on_hosts, inside)
        return self._roots[boot]

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        sock = self.folder / "munge.socket"
        argv = ["munged", "--foreground", "--force", "--num-threads=4", f"--key-file={key}"]
        argv += [f"--socket={sock}", f"--log-file={self.folder}/log/munged.log"]
        argv += [f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed"]
        self._spawn("munged", Here(), argv)
        poll("munged", sock.exists)

    def _spawn(self, name: str, place: Place, argv: Sequence[str]) -> None:
        with (self.folder / "log" / f"{name}.err").open("ab") as err:
            self._daemons[name] = subprocess.Popen(
                # A crash of Slurm's own leaves its core nowhere else.
                place.wrap(["prlimit", "--core=0", "env", "-C", str(self.folder), *argv]),
                env=self.environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                start_new_session=True,
            )

    def _inner_pid(self, pid: int, command: str) -> int:
        """The daemon itself: nsenter into a process namespace leaves a parent outside."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            line = [pid]
            while line:
                at = line.pop()
                # Reconfigured, newer ones exec themselves anew: then Debian's slurmctld, a link to
                # slurmctld-wlm, is called by its full name.
                comm = Path(f"/proc/{at}/comm").read_text().strip()
                if comm.removesuffix("-wlm") == command:
                    return at
                line += map(int, Path(f"/proc/{at}/task/{at}/children").read_text().split())
            time.sleep(0.02)
        raise LabError(f"no {command} under process {pid}")


def _command(daemon: str) -> str:
    return "slurmctld" if daemon.startswith("slurmctld") else "slurmd"


def _parse(line: str) -> Job:
    # Comments may hold blanks, so a field begins only at a word followed by "=".
    fields: dict[str, str] = {}
    last = ""
    for word in line.split(" "):
        key, equals, value = word.partition("=")
        if equals and key.replace("/", "").replace(":", "").isalnum():
            fields[key] = value
            last = key
        elif last and word:
            fields[last] += " " + word
    return Job(fields)
