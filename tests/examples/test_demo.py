"""`make demo` as a newcomer sees it: it shows the right output, succeeds, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for the demo's folder, with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as folder:
        yield Path(folder)


@contextlib.contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(DEMO)],
        cwd=folder,  # it must not matter where it is run
        env={**os.environ, "TMPDIR": str(folder), "VIPU_CLI_API_HOST": "nowhere.invalid"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def marked(folder: Path) -> list[str]:
    """Processes whose environment names the demo's folder."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in Path("/proc", name, "environ").read_bytes():
                found.append(Path("/proc", name, "cmdline").read_bytes().decode())
    return found


def assert_nothing_left(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while (left := marked(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert list(folder.iterdir()) == []


def test_the_demo_trains_and_leaves_nothing(short: Path) -> None:
    with demo(short) as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert "this demo uses a simulated POD16" in out
    assert "pod16" in out
    assert "poprun topology" in out
    assert "| instances |   0   |   1   |   2   |   3   |" in out
    assert "SIMULATED" in out
    assert out.count("epoch  20 of 20") == 1, "progress is said once, not by each instance"
    accuracy = out.rpartition("test accuracy ")[2].split()[0]
    assert float(accuracy) >= 0.95
    assert out.endswith("Nothing is left: no process, no partition, no file.\n")
    assert_nothing_left(short)


@pytest.mark.parametrize(
    ("when", "signum", "whole_group", "code"),
    [
        ("epoch", signal.SIGINT, True, 130),  # Ctrl-C goes to poprun as well
        ("epoch", signal.SIGTERM, False, 143),
        ("$ poprun", signal.SIGINT, True, 130),
        ("POD16", signal.SIGINT, True, 130),
    ],
)
def test_an_interrupted_demo_leaves_nothing(
    short: Path, when: str, signum: signal.Signals, whole_group: bool, code: int
) -> None:
    with demo(short) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if when in line:
                (os.killpg if whole_group else os.kill)(process.pid, signum)
                break
        rest = process.stdout.read()
        assert process.wait(300) == code, rest
    assert "Nothing is left" not in rest
    assert_nothing_left(short)


def test_a_demo_without_commands_says_so(short: Path) -> None:
    bare = short / "python"
    bare.symlink_to(sys.executable)
    ran = subprocess.run([bare, str(DEMO)], capture_output=True, text=True, check=False)
    bare.unlink()
    assert ran.returncode == 1
    assert "run make demo" in ran.stderr
    assert_nothing_left(short)
