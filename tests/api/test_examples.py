"""The example on each command's page is run unchanged, and prints what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.reference import SHOWN_ON, all_examples, reference_page, verbs_of

from podwright.cli.about._command_parsers import COMMANDS, parser_of
from tests.pages import Block, blocks
from tests.ports import free_ports
from tests.whole.conftest import BIN
from tests.whole.conftest import Pod as Server

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
#: Pages that tests elsewhere type: on a real Slurm, on a real Kubernetes, with agents.
ELSEWHERE = ("slurm", "kubernetes", "vipu-admin")
INNER = sorted(page for page in FOLDER.glob("*.md") if page.stem not in ELSEWHERE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_verb_of_a_command_has_an_example_of_itself(command: str) -> None:
    examples = all_examples()
    assert command in examples
    for verb in verbs_of(command):
        if verb in SHOWN_ON:
            assert verb not in examples
            assert verb in (FOLDER.parent / SHOWN_ON[verb]).read_text()
            continue
        assert verb in examples, verb
        typed = " ".join(re.findall(r"^```bash\n(.*?)^```$", examples[verb], re.M | re.S))
        assert re.search(rf"{verb}s?\b", typed), f"the example of {verb} does not use it"


def test_every_example_shows_what_it_prints() -> None:
    for page in FOLDER.glob("*.md"):
        assert all(block.printed for block in blocks(page)), page


def test_every_option_of_every_verb_has_an_anchor_in_the_reference() -> None:
    for command in COMMANDS:
        page = reference_page(command)
        for option in parser_of(command)._option_string_actions:
            assert re.search(rf"^`+{{option}} .*{option}\b", page, re.M) or option == "-h", option
        for verb in verbs_of(command):
            assert f"{{program}} {verb}\n" in page


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Three agents and a server that has no cluster yet; the ports of the page, and ours."""
    ours = dict(zip(("8081", "8082", "8083"), map(str, free_ports(3)), strict=True))
    key = tmp_path / "agent.key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    running = [
        subprocess.Popen(
            [
                BIN / "vipu-agent",
                *("--machine", f"ag{number}", "--port", port),
                *("--agent-key", key, "--state", tmp_path / f"agent{number}"),
            ],
            stderr=subprocess.DEVNULL,
        )
        for number, port in enumerate(ours.values(), 1)
    ]
    yield ours
    for agent in running:
        agent.terminate()
        agent.wait(300)


@pytest.mark.parametrize("page", INNER, ids=lambda page: page.stem)
def test_an_example_prints_what_its_page_says(page: Path, server: Server, tmp_path: Path) -> None:
    """Standard output, as none of them is a terminal; a server's first line is on the other."""
    port = free_ports(1)[0]
    ours = {f"{word}8090": f"{word}{port}" for word in ("localhost:", "--api-port ")}
    _type_all(page, tmp_path, ours)


def test_the_examples_of_administrators_print_what_their_page_says(
    agents: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pod"
    folder.mkdir(mode=0o700)
    listens = ("--autodiscovery-listen-interfaces", "lo")
    server = Server(folder, "--agent-key", str(tmp_path / "agent.key"), *listens)
    server.start()
    try:
        monkeypatch.setenv("PODWRIGHT_SOCKET", str(server.socket))
        _type_all(FOLDER / "vipu-admin.md", tmp_path, agents)
    finally:
        server.stop()


def _type_all(page: Path, folder: Path, ports: dict[str, str]) -> None:
    for number, block in enumerate(blocks(page)):
        out = folder / f"out{number}"
        serves = block.typed.startswith(("vipu-agent", "vipu-server --preset"))
        typed = block.typed
        for theirs, ours in ports.items():
            typed = typed.replace(theirs, ours)
        _type(block._replace(typed=typed), out, folder, serves=serves)
        assert block.fits(out.read_text()), typed + out.read_text() + (folder / "err").read_text()


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
