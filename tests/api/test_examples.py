"""The example on each command's page is run unchanged, and prints what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podwright.cli.about._command_parsers import COMMANDS
from tests.pages import Block, blocks
from tests.whole.conftest import Pod as Server

FOLDER = Path(__file__).parents[2] / "docs" / "examples"


def test_each_command_has_an_example() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == set(COMMANDS)
    for page in FOLDER.glob("*.md"):
        found = blocks(page)
        assert page.stem in "".join(block.typed for block in found)
        assert all(block.printed for block in found)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_an_example_prints_what_its_page_says(page: Path, server: Server, tmp_path: Path) -> None:
    """Standard output, as none of them is a terminal; a server's first line is on the other."""
    for number, block in enumerate(blocks(page)):
        out = tmp_path / f"out{number}"
        serves = block.typed.startswith(("vipu-agent", "vipu-server"))
        _type(block, out, tmp_path, serves=serves)
        assert block.fits(out.read_text()), out.read_text() + (tmp_path / "err").read_text()


def _type(block: Block, out: Path, folder: Path, *, serves: bool) -> None:
    """Until it ends; what serves is ended once it has said what the page says."""
    # Run as root it would keep its state where an agent of this machine does.
    typed = re.sub(r"^vipu-agent", f"vipu-agent --state {folder}/state", block.typed)
    environ = {**os.environ, "PODWRIGHT_AGENT_KEY": str(folder / "key"), "HOME": str(folder)}
    with out.open("wb") as file, (folder / "err").open("ab") as other:
        shell = subprocess.Popen(
            ["bash", "-c", typed],
            cwd=folder,
            env={**environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file if serves else other,
            process_group=0,
        )
    try:
        deadline = time.monotonic() + 300
        while shell.poll() is None and not (serves and block.fits(out.read_text())):
            assert time.monotonic() < deadline, out.read_text()
            time.sleep(0.05)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGTERM if serves else signal.SIGKILL)
        shell.wait(300)
