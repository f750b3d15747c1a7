"""A Slurm with native mode set up by the real command: server, service, hooks, options."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from podwright.client import Client, UnixTransport
from podwright.wire import PartitionInfo
from tests.outer.lab import ALICE, LabError, Release, SlurmLab, poll
from tests.outer.lab._folder import new_folder, remove
from tests.outer.lab._places import Here, run
from tests.ports import free_port

SCHEDULER = (
    "batch_sched_delay=0,sched_min_interval=0,sched_interval=5,bf_interval=1,"
    "default_queue_depth=10000,bf_max_job_test=10000,nohold_on_prolog_fail"
)

#: Capabilities by which a user enters the other release, where Slurm's commands are.
ENTER = ("sys_admin", "sys_chroot", "sys_ptrace")
_COMMANDS = ("squeue", "scontrol", "sinfo", "sbatch", "srun", "salloc", "scancel", "sacct")
PODWRIGHT = [sys.executable, "-m", "podwright.cli.podwright"]


class NativeLab(SlurmLab):
    """`with NativeLab(preset="pod256") as lab`. options: of SlurmLab.

    served_by: who runs `slurm serve`. ask, ask_all: a quarter of the devices, and all of them, as
    sbatch is told.
    """

    ask: tuple[str, ...] = ("--ipus=16",)
    ask_all: tuple[str, ...] = ("--ipus=64",)

    def __init__(
        self,
        *,
        preset: str = "pod64",
        configure: Sequence[str] = (),
        served_by: str = "root",
        **options: Any,
    ) -> None:
        conf = {"SchedulerParameters": SCHEDULER, **options.pop("conf", {})}
        super().__init__(conf=conf, **options)
        self.preset = preset
        self.served_by = served_by
        self.port = free_port()
        self._configure = list(configure)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._start_munged()
        self.start_server()
        if self.served_by != "root":
            words = ["create", "user", self.served_by, "--role", "scheduler"]
            done = self.command("vipu_admin", *words, "--uid", self.served_by, user="root")
            if done.returncode:
                raise LabError(done.stderr)
        self.configure("--write")
        self.start_accounts()
        self.start_daemon("slurmctld", clean=True)
        self.start_service()
        for name in self.nodes:
            self.start_daemon(name)
        self.wait_for_nodes()
        self.wait_for_service()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        super().stop()

    # Set up

    @property
    def server_socket(self) -> Path:
        return self.folder / "server.sock"

    @property
    def hooks_socket(self) -> Path:
        return self.folder / "hooks" / "slurm.sock"

    def configure(self, *words: str) -> str:
        native = self.build()
        done = self.podwright(
            *["slurm", "configure", "--slurm-conf", f"{self.folder}/slurm.conf"],
            *["--folder", f"{self.folder}/podwright", "--native", str(native)],
            *["--server", str(self.server_socket), "--hooks-socket", str(self.hooks_socket)],
            *([] if "--server" in self._configure else ["--port", str(self.port)]),
            *self._configure,
            *words,
        )
        if done.returncode:
            raise LabError(done.stderr + done.stdout)
        return done.stdout

    def build(self) -> Path:
        """The compiled pieces for this lab's release."""
        return build(self.release, self.folder)

    def site_option(self) -> list[str]:
        return ["--site", f"{self.folder}/podwright/native.toml"]

    def podwright(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, beside the lab's Slurm."""
        return self.beside("-m", "podwright.cli.podwright", *words)

    def beside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """This machine's Python, beside the lab's Slurm."""
        around = self.environment() | self._slurm_beside()
        return run(Here(), [sys.executable, *words], env=around, cwd=self.folder / "out")

    def command(
        self, module: str, *words: str, user: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One of our commands as an ordinary user, wherever the project lies.

        He may read what root may, as the project's folder need not be open to all.
        """
        argv = [
            *_reading_all(user, *ENTER),
            sys.executable,
            "-m",
            f"podwright.cli.{module}",
            *words,
        ]
        full = {"PODWRIGHT_SOCKET": str(self.server_socket), **(env or {})}
        if self.release.root is None:
            return self.run(*argv, env=full)
        around = self.environment() | full | self._slurm_beside()
        return run(Here(), argv, env=around, cwd=self.folder / "out")

    def _slurm_beside(self) -> dict[str, str]:
        """Our commands are this machine's, and Slurm's are the other release's, if it is one."""
        path = self.environment()["PATH"]
        if self.release.root is None:
            return {}
        for name in (*_COMMANDS, "runuser"):
            line = (
                f'exec {shlex.join(self.prefix())} env -C {self.folder}/out PATH={path} {name} "$@"'
            )
            self.write(f"bin/{name}", f"#!/bin/sh\n{line}\n")
        return {"PATH": f"{self.folder}/bin:{path}"}

    def start_server(self) -> None:
        self.serve("--preset", self.preset)

    def start_accounts(self) -> None:
        """What must run before slurmctld: nothing, but for a lab with accounts."""

    def serve(self, *options: str) -> None:
        self.serve_at(self.port, *options)

    def serve_at(self, port: int, *options: str) -> None:
        argv = ["podwright.cli.vipu_server", *options, "--api-port", str(port)]
        argv += ["--socket", str(self.server_socket), "--storage", f"{self.folder}/server.db"]
        self._begin("server", argv)
        # Ordinary users come to it as well: their programs find their partition there.

        def there() -> bool:
            if self._processes["server"].poll() is not None:
                raise LabError((self.folder / "log" / "server.log").read_text()[-2000:])
            return _answers(self.server_socket)

        poll("the server", there)
        self.server_socket.chmod(0o666)

    def start_service(self) -> None:
        argv = ["podwright.cli.podwright", "slurm", "serve"]
        argv += ["--site", f"{self.folder}/podwright/native.toml"]
        argv += [f"--command-prefix={shlex.join(self.prefix())}"]
        self._begin("service", argv, user=self.served_by)

    def wait_for_service(self) -> None:
        """It answers hooks: vipu-server and slurmctld have answered it."""
        poll("the service", lambda: _answers(self.hooks_socket) and self.state()["ready"])

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends "server" or "service"."""
        process = self._processes.pop(name)
        process.send_signal(how)
        process.wait()

    def send(self, name: str, how: signal.Signals) -> None:
        """A signal for "server" or "service"."""
        self._processes[name].send_signal(how)

    def where(self, argv: Sequence[str]) -> list[str]:
        """What runs one of our processes: this machine, but for a lab of hosts."""
        return list(argv)

    def pid(self, name: str) -> int:
        """The process of "server" or "service"."""
        return self._processes[name].pid

    def runs(self, name: str) -> bool:
        return name in self._processes

    def _begin(self, name: str, argv: Sequence[str], *, user: str = "root") -> None:
        who = [] if user == "root" else _reading_all(user, *ENTER)
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self.where([*who, sys.executable, "-m", *argv]),
                env={**self.environment(), "PODWRIGHT_AGENT_KEY": f"{self.folder}/agent.key"},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    # Looks

    def client(self) -> Client:
        return Client(UnixTransport(str(self.server_socket)))

    def partitions(self) -> dict[str, PartitionInfo]:
        with self.client() as client:
            return {one.name: one for one in client.list_partitions()}

    def held(self) -> int:
        """Devices that partitions hold, by the server's word."""
        return sum(one.size for one in self.partitions().values())

    def holds(self, job: int) -> str | None:
        """What a job holds is for this life of it: `7`, `7/1` restarted once; None: nothing."""
        found = self.partitions().get(f"slurm_{job}")
        return found.job.partition(",")[0] if found else None

    def taken(self) -> list[str]:
        """Each device that a job holds, by the server's word; twice where it is given twice."""
        found = self.partitions().values()
        return [f"{ref.domain}:{ref.offset}" for one in found for gcd in one.gcds for ref in gcd]

    def wait_free(self, seconds: float = 30.0) -> None:
        """Nothing is held any more, and Slurm counts so."""
        poll("all devices free", lambda: not self.partitions(), seconds=seconds)

    def state(self) -> dict[str, Any]:
        """What the service says of itself."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(300)
            connection.connect(str(self.hooks_socket))
            connection.sendall(b"GET /slurm.v1/State HTTP/1.0\r\n\r\n")
            data = b""
            while more := connection.recv(65536):
                data += more
        found: dict[str, Any] = json.loads(data.partition(b"\r\n\r\n")[2])
        return found

    def service_log(self) -> str:
        return (self.folder / "log" / "service.log").read_text()

    def batch(self, script: str, *options: str, user: str = ALICE) -> int:
        """A batch job of an ordinary user's, whose output is kept."""
        return self.submit(script, *options, user=user)

    def output(self, job: int) -> str:
        path = self.folder / "out" / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""


def build(release: Release, folder: Path) -> Path:
    """The compiled pieces for a release, in the lab's folder for all its users."""
    into = folder / "native"
    if not into.exists():
        shutil.copytree(_compiled(release.headers), into, symlinks=True)
    return into


@cache
def _compiled(headers: str) -> Path:
    """Made once for all labs of this process, with whose end the folder goes."""
    folder = new_folder()
    atexit.register(remove, folder)
    include = ["--include", headers] if headers else []
    done = subprocess.run(
        [*PODWRIGHT, "slurm", "build", "--into", f"{folder}/native", *include],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    if done.returncode:
        raise LabError(done.stderr)
    return folder / "native"


def _reading_all(user: str, *more: str) -> list[str]:
    """As this user, who may read what root may. more: capabilities beside that."""
    caps = ",".join(f"+{cap}" for cap in ("dac_read_search", *more))
    who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return [*who, f"--inh-caps={caps}", f"--ambient-caps={caps}", "--"]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
