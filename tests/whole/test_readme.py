"""The README and the first tutorial work as typed, and print what these pages show."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pages import Block, blocks
from tests.whole.conftest import REPOSITORY


class Typed(NamedTuple):
    """What a terminal shows after some lines were typed, and the exit code of each line."""

    shown: str
    codes: list[int]


class Newcomer:
    """A shell in a folder that looks like a checkout after `make demo`.

    Only the home folder and the runtime folder are private to the test.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        (folder / ".venv").symlink_to(sys.prefix)
        (folder / "examples").symlink_to(REPOSITORY / "examples")

    def type(self, lines: str) -> Typed:
        """Type lines into one shell; like a person's shell, it goes on after one that failed."""
        marked = "".join(f'{line}\necho "exit code $?"\n' for line in lines.splitlines())
        done = subprocess.run(
            ["bash", "-c", "exec 2>&1\n" + marked],
            cwd=self._folder,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self._folder),
                "XDG_RUNTIME_DIR": str(self.runtime),
                "LC_ALL": "C.UTF-8",
                "PODWRIGHT_AGENT_KEY": os.environ["PODWRIGHT_AGENT_KEY"],
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        )
        codes = [int(code) for code in re.findall(r"^exit code (\d+)$", done.stdout, re.MULTILINE)]
        shown = [
            line
            for line in done.stdout.splitlines(keepends=True)
            # A newcomer is rarely root, so the pages do not show mpirun's warning to root.
            if not line.startswith("exit code ") and "--allow-run-as-root" not in line
        ]
        return Typed("".join(shown), codes)


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    newcomer = Newcomer(tmp_path)
    yield newcomer
    _end_the_server(newcomer.runtime)


def _end_the_server(runtime: Path) -> None:
    """End the server that `vipu` started for this user, and wait until it has closed its socket.

    The kernel tells which process listens: SO_PEERCRED of a connection names it.
    """
    (path,) = runtime.rglob("*.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, _uid, _gid = struct.unpack("3i", credentials)
        os.kill(pid, signal.SIGTERM)
        assert connection.recv(1) == b""


def test_the_readmes_first_block_runs_as_typed(newcomer: Newcomer) -> None:
    """tests/examples runs the first line's demo itself, which leaves nothing behind."""
    readme = REPOSITORY / "README.md"
    first, *lines = blocks(readme)[0].typed.splitlines()
    assert first.startswith("make demo ")
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(r"^demo: .*\n\t.*examples/\$\(or \$\(DEMO\),demo\)\.py", makefile, re.M)
    typed = newcomer.type("\n".join(lines))
    assert typed.codes == [0, 1, 0, 0, 0], "only lint exits with 1: it found mistakes"
    printed = re.findall(r"^```text\n(.*?)^```$", readme.read_text(), re.M | re.S)
    assert printed[0] in typed.shown
    assert _accuracy(typed.shown) >= 0.95


def test_the_laptop_tutorial_prints_what_it_shows(newcomer: Newcomer) -> None:
    """Every block but the installation and the page in a browser, which have tests of their own."""
    install, *rest = blocks(REPOSITORY / "docs" / "laptop.md")
    assert "pip install" in install.typed
    by_hand = [block for block in rest if block.typed != "podwright web\n"]
    assert len(by_hand) == len(rest) - 1
    for block in by_hand:
        commands = Block(f"source .venv/bin/activate\n{block.typed}", block.printed)
        typed = newcomer.type(commands.typed)
        assert set(typed.codes) == {0}, typed.shown
        assert block.fits(typed.shown), typed.shown


def _accuracy(shown: str) -> float:
    return float(shown.rpartition("test accuracy ")[2].split()[0])
