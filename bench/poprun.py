"""How long poprun takes for four instances of `true`, beside plain mpirun in the same run.

Seconds on top of mpirun: with a server running, and with a server that poprun has to start.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import Figures, figure

BIN = Path(sys.executable).parent
INSTANCES = 4
ROUNDS = 9
LIMIT, LIMIT_STARTING = 0.15, 0.5


def run() -> Figures:
    """The two figures, and what mpirun itself took."""
    mpirun = [str(BIN / "mpirun"), "--oversubscribe", "--bind-to", "none"]
    if os.getuid() == 0:
        mpirun.append("--allow-run-as-root")
    mpirun += ["-np", str(INSTANCES), "true"]
    poprun = [str(BIN / "poprun"), f"--num-replicas={INSTANCES}", f"--num-instances={INSTANCES}"]
    poprun.append("true")
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as folder:
        environ = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("VIPU_", "PODWRIGHT_"))},
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        runtime = Path(folder) / "run"
        runtime.mkdir(mode=0o700)
        environ["XDG_RUNTIME_DIR"] = str(runtime)
        _seconds(poprun, environ)  # starts the server, fills the file cache
        plain, warm, cold = [], [], []
        try:
            for _ in range(ROUNDS):
                plain.append(_seconds(mpirun, environ))
                warm.append(_seconds(poprun, environ))
        finally:
            _end_servers(environ)
        for number in range(ROUNDS):
            fresh = Path(folder) / str(number)
            fresh.mkdir(mode=0o700)
            own = {**environ, "XDG_RUNTIME_DIR": str(fresh)}
            plain.append(_seconds(mpirun, environ))
            try:
                cold.append(_seconds(poprun, own))
            finally:
                _end_servers(own)
    base = statistics.median(plain)
    params: dict[str, Any] = {"instances": INSTANCES, "program": "true", "rounds": ROUNDS}
    yield figure("mpirun", base, "s", **params)
    for name, times, limit in (("running", warm, LIMIT), ("started", cold, LIMIT_STARTING)):
        on_top = statistics.median(times) - base
        yield figure("poprun_over_mpirun", on_top, "s", limit=limit, server=name, **params)


def _seconds(command: Sequence[str], environ: Mapping[str, str]) -> float:
    before = time.perf_counter()
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    after = time.perf_counter()
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with code {done.returncode}: {done.stderr}")
    return after - before


def _end_servers(environ: Mapping[str, str]) -> None:
    """End the server that was started for this runtime folder, and wait until it is gone."""
    for pid in _servers(f"XDG_RUNTIME_DIR={environ['XDG_RUNTIME_DIR']}"):
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.01)


def _servers(entry: str) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if entry.encode() in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
        except OSError:
            continue
