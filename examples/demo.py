"""What `make demo` runs: a simulated pod, a real program trained on it, and nothing left behind.

It uses the commands as anybody would, with a server, a home and a temporary folder of its own,
so that no server, setting or file of the user's is touched. Every process that it causes, however
indirectly, carries a mark in its environment; at the end it looks for the mark in all processes,
asks for partitions, and looks for files. Exit code 0 only if all of that went well.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PROGRAM = "examples/train_digits.py"
MARK = "PODWRIGHT_DEMO"
#: Of an outer launch, job or setting, which must not reach the demo's commands.
FOREIGN = re.compile(r"(VIPU|IPUOF|PODWRIGHT|POPDIST|POPLAR|OMPI|PMIX|PRTE|PMI|SLURM)_|PYTHON")
DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/ipu[0-9]*")
LIMIT = 300.0  # seconds for one command; the whole demo takes a few


class Failed(Exception):
    """The demo's one error: what went wrong, in one line."""


class Demo:
    """A folder, an environment, and the processes that carry its mark."""

    def __init__(self) -> None:
        # A socket's path has room for 107 characters, and ours adds some.
        where = tempfile.gettempdir()
        where = where if len(where) < 60 else "/tmp"
        self.folder = Path(tempfile.mkdtemp(prefix="podwright-demo-", dir=where))
        self.mark = f"{MARK}={self.folder.name}"
        for name in ("run", "tmp", "home"):
            (self.folder / name).mkdir(mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        self.socket = self.folder / "run" / "podwright" / "server.sock"
        self.environ = {
            **{name: value for name, value in kept.items() if not name.startswith("XDG_")},
            "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "PODWRIGHT_SOCKET": str(self.socket),
            MARK: self.folder.name,
        }
        self.runs: set[str] = set()  # the folders of our launches

    def start_server(self, *hardware: str) -> None:
        """A server of our own, in the background, over simulated hardware: a POD16, or what these
        options of vipu-server name."""
        self.socket.parent.mkdir(mode=0o700)
        with open(self.folder / "server.log", "wb") as log:
            server = subprocess.Popen(
                [
                    *(BIN / "vipu-server", "--user", "--idle-seconds", "60"),
                    *(hardware or ("--preset", "pod16")),
                ],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends the demo, and the demo ends the server
            )
        deadline = time.monotonic() + 120
        while not self.socket.is_socket():
            if server.poll() or time.monotonic() > deadline:
                said = (self.folder / "server.log").read_text().strip()
                raise Failed(f"vipu-server did not start: {said or 'it said nothing'}")
            time.sleep(0.02)

    def run(self, *command: str) -> str:
        """Run a command for everyone to see; what it printed. Raises Failed."""
        print(f"\n$ {shlex.join(command)}", flush=True)
        lines = []
        with self._popen(command) as process:
            guard = _Guard(process)
            with guard:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", flush=True)
                    lines.append(line)
                    self.runs.update(path.name for path in (self.folder / "tmp").iterdir())
        if process.returncode:
            raise Failed(f"{command[0]} ended with code {process.returncode}{guard.why}")
        return "".join(lines)

    def ask(self, *command: str) -> str:
        """Run a command unseen; what it printed. Raises Failed."""
        with self._popen(command, quiet=True) as process, _Guard(process):
            out, said = process.communicate()
        if process.returncode:
            raise Failed(f"{shlex.join(command)} failed: {said.strip()}")
        return out

    def _popen(self, command: tuple[str, ...], *, quiet: bool = False) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
        )

    def processes(self) -> dict[int, str]:
        """Every process that carries the mark, by pid, with its command line."""
        found = {}
        mark = self.mark.encode()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                variables = Path("/proc", name, "environ").read_bytes().split(b"\0")
                if mark in variables:
                    line = Path("/proc", name, "cmdline").read_bytes()
                    found[int(name)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def end(self, pids: set[int], signum: int = signal.SIGTERM) -> dict[int, str]:
        """Send these processes a signal; what is left of all with the mark some seconds later."""
        for pid in pids & set(self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        deadline = time.monotonic() + 8
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def close(self) -> None:
        """Whatever happened: end every process with the mark, and remove the folder."""
        if left := self.end(set(self.processes())):
            self.end(set(left), signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def files(self) -> list[str]:
        """Files that programs left: in the temporary folder, or in our launches' shared memory.

        What else is new in /dev/shm is a neighbour's: a launch keeps its segments in its folder.
        """
        left = {str(path) for path in (self.folder / "tmp").iterdir()}
        shared = glob.glob("/dev/shm/podwright-run-*")
        return sorted(left | {path for path in shared if Path(path).name in self.runs})


class _Guard:
    """Ends a command that takes too long, or whose demo is interrupted, and waits for it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.why = ""

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._too_long)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if kind is not None:
            self.process.terminate()  # poprun takes down its instances and its partition
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)

    def _too_long(self, *_: object) -> None:
        self.why = f" after {LIMIT:g} s, which is too long"
        self.process.terminate()


def show(demo: Demo) -> None:
    """The demo itself. Raises Failed."""
    found = [device for pattern in DEVICES for device in glob.glob(pattern)]
    if found:
        print(f"This machine's accelerators ({', '.join(found)}) are left alone:", end=" ")
    else:
        print("No accelerators found on this machine:", end=" ")
    print("this demo uses a simulated POD16.", flush=True)
    demo.start_server()
    demo.run("vipu", "list", "clusters")
    before = set(demo.processes())
    output = demo.run(
        "poprun", "--num-replicas", "8", "--num-instances", "4", "--print-topology=yes",
        "python3", PROGRAM,
    )  # fmt: skip
    reached = re.search(r"test accuracy (\d\.\d+)", output)
    if not reached:
        raise Failed("the program did not say what it reached")
    if float(reached[1]) < 0.95:
        raise Failed(f"the test accuracy is {reached[1]}; it should be 0.95 or more")
    demo.run("vipu", "list", "partitions")
    check_nothing_left(demo, before)


def check_nothing_left(demo: Demo, before: set[int]) -> None:
    """Prove it, then say it. Raises Failed."""
    answer = json.loads(demo.ask("vipu", "list", "partitions", "--json"))
    partitions = answer["partitions"] if isinstance(answer, dict) else answer
    if partitions:
        raise Failed(f"partitions are left: {partitions}")
    if left := demo.end(before):
        raise Failed(f"processes are left: {left}")
    if demo.files():
        time.sleep(0.5)  # perhaps another program has just made it, and not opened it yet
    if files := demo.files():
        raise Failed(f"files are left: {', '.join(files)}")


def perform(show: Callable[[Demo], None]) -> int:
    """A demo from its beginning to its end, however it ends; the exit code."""
    for name in ("vipu", "vipu-server", "poprun"):
        if not (BIN / name).exists():
            print(f"demo: there is no {BIN / name}; run make demo", file=sys.stderr)
            return 1
    signal.signal(signal.SIGTERM, _end)
    demo = Demo()
    code, why = 0, ""
    try:
        show(demo)
    except Failed as failure:
        code, why = 1, str(failure)
    except KeyboardInterrupt:
        code, why = 130, "interrupted"
    except _Ended:
        code, why = 143, "ended"
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # cleaning up is not to be interrupted
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        demo.close()
    if demo.folder.exists():
        code, why = code or 1, why or f"{demo.folder} cannot be removed"
    if code:
        print(f"demo: {why}", file=sys.stderr)
    else:
        print("\nNothing is left: no process, no partition, no file.")
    return code


class _Ended(BaseException):
    """SIGTERM."""


def _end(*_: object) -> None:
    raise _Ended


if __name__ == "__main__":
    sys.exit(perform(show))
