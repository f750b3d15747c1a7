"""What a user waits for `vipu list partitions`, as a whole process against a running server.

Held against a process that does no more than import grpc: that is what any command of V-IPU's
kind would pay before its first word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import Figures, figure
from podwright.client import ServerOptions, find_server

LIMIT = 0.060
ROUNDS = 21
PARTITIONS = 4
_VIPU = (sys.executable, "-m", "podwright.cli.vipu")
_GRPC = (sys.executable, "-c", "import grpc")


def run() -> Figures:
    """Seconds over importing grpc alone: the difference of two medians, taken in turns."""
    with _server() as environ:
        for number in range(PARTITIONS):
            words = ("create", "partition", f"p{number}", "--size", "4")
            _wall((*_VIPU, *words), environ)
        pairs = [
            (_wall((*_VIPU, "list", "partitions"), environ), _wall(_GRPC, environ))
            for _ in range(ROUNDS)
        ]
    vipu, grpc = (statistics.median(times) for times in zip(*pairs, strict=True))
    yield figure(
        "vipu_list",
        round(vipu - grpc, 4),
        "s",
        limit=LIMIT,
        whole=round(vipu, 4),
        grpc_import=round(grpc, 4),
        rounds=ROUNDS,
        partitions=PARTITIONS,
    )


def _wall(command: tuple[str, ...], environ: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return time.perf_counter() - start


@contextlib.contextmanager
def _server() -> Iterator[dict[str, str]]:
    """A user's own server in a place of its own; the environment in which it is found."""
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as folder:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("VIPU_", "PODWRIGHT_"))}
        places = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"), folder)
        environ = {**kept, **places}
        found = find_server(ServerOptions(), environ)
        with found.client:
            if found.how != "started":
                raise RuntimeError(f"a server runs at {found.client.where}; end it to measure")
        try:
            yield environ
        finally:
            os.kill(found.info.pid, signal.SIGTERM)
            _gone(Path(folder, "podwright", "server.sock"))


def _gone(socket: Path) -> None:
    deadline = time.monotonic() + 30
    while socket.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
