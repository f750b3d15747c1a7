"""How long `podwright top` takes to show a pod: from its start to the first partition.

A whole process on a terminal of 80x24, of a server of a simulated POD64 that runs already.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from statistics import median

from bench import Figures, figure

RUNS = 9
LIMIT = 1.0
_MARK = b"measured"


def _once(environ: dict[str, str]) -> float:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "podwright.cli.podwright", "top"]
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        seen = b""
        while _MARK not in seen:
            seen += os.read(leader, 65536)
        took = time.perf_counter() - start
        os.write(leader, b"q")
        while process.poll() is None:
            try:
                os.read(leader, 65536)
            except OSError:
                break
    os.close(leader)
    return took


def run() -> Figures:
    """Seconds to the first screen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        socket = folder / "server.sock"
        own = [sys.executable, "-m"]
        environ = {**os.environ, "PODWRIGHT_SOCKET": str(socket), "TERM": "xterm-256color"}
        place = ["--socket", str(socket), "--api-port", "0", "--storage", f"{folder}/db"]
        server = subprocess.Popen(
            [*own, "podwright.cli.vipu_server", *place, "--preset", "pod64"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            create = [*own, "podwright.cli.vipu", "create", "partition", "measured", "--size", "4"]
            while subprocess.run(create, env=environ, capture_output=True).returncode:
                if server.poll() is not None:
                    raise RuntimeError("the server ended")
                time.sleep(0.1)
            took = median(_once(environ) for _ in range(RUNS))
        finally:
            server.terminate()
            server.wait()
    yield figure("top_start", took, "s", limit=LIMIT, pod="pod64", runs=RUNS)
