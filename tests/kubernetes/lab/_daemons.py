"""Daemons of a lab, each with a name, a log and the command that starts it again after a kill."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.outer.lab import LabError


class Daemons:
    """folder: the lab's. `log/NAME.log` has a daemon's output. Its environment names the lab."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder
        self._environment = {
            "PATH": path,
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PODWRIGHT_LAB": str(folder),
        }
        self._words: dict[str, tuple[Sequence[str], str, Sequence[int]]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "log").mkdir()

    def start(
        self, name: str, argv: Sequence[str], *, command: str = "", keep: Sequence[int] = ()
    ) -> None:
        """Start a daemon.

        command: the daemon's process name if another program starts it (nsenter). keep: files that
        it inherits.
        """
        self._words[name] = (argv, command, keep)
        self.restart(name)

    def restart(self, name: str) -> None:
        """Start a daemon again in the same way. Raises LabError if it still runs."""
        if self.alive(name):
            raise LabError(f"{name} runs")
        argv, _, keep = self._words[name]
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                argv,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=keep,
                start_new_session=True,
            )

    def alive(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def check(self, name: str) -> None:
        """Raise LabError, with the end of its log, if it has ended by itself."""
        if not self.alive(name):
            raise LabError(f"{name} ended:\n{self.log(name)[-3000:]}")

    def log(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def pid(self, name: str) -> int:
        """Return the pid of the daemon itself, in this machine's numbers."""
        process, command = self._running[name], self._words[name][1]
        if not command:
            return process.pid
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            line = [process.pid]
            while line:
                at = line.pop()
                if Path(f"/proc/{at}/comm").read_text().strip() == command[:15]:
                    return at
                line += map(int, Path(f"/proc/{at}/task/{at}/children").read_text().split())
            self.check(name)
            time.sleep(0.02)
        raise LabError(f"no {command} under process {process.pid}")

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill a daemon, and wait for its end."""
        os.kill(self.pid(name), how)
        self._running.pop(name).wait()

    def forget(self, name: str) -> None:
        """Forget a daemon that has ended together with its node."""
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def end(self) -> None:
        """Kill all of them by SIGKILL."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def _log(self, name: str) -> Path:
        return self._folder / "log" / f"{name}.log"


def as_options(settings: Mapping[str, str]) -> list[str]:
    """Return {"port": "0"} as --port=0. Options without a value ("") are left out."""
    return [f"--{name}={value}" for name, value in settings.items() if value]
