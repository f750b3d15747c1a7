"""docs/admin/shared-pod.md: its command lines exist, and its server part does what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from podwright.cli.about._command_parsers import COMMANDS, parser_of
from podwright.wire import EnqueueRequest, PoolHead
from tests.whole.conftest import REPOSITORY, Pod

PAGE = (REPOSITORY / "docs/admin/shared-pod.md").read_text()


def _consoles() -> list[list[str]]:
    """The lines of each console on the page."""
    consoles = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text.splitlines() for text in consoles]


def _typed(lines: list[str]) -> list[str]:
    return [line[2:] for line in lines if line[:2] in ("# ", "$ ")]


def _printed(lines: list[str], typed: str) -> str:
    """What the page shows below a line of a console."""
    behind = lines[[line[2:] for line in lines].index(typed) + 1 :]
    shown = [line for line in behind if line[:2] not in ("# ", "$ ")]
    return "".join(f"{line}\n" for line in shown)


def _commands() -> list[str]:
    """Every command line of Podwright on the page, in consoles and in sentences."""
    sentences = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    parts = [part for lines in _consoles() for line in _typed(lines) for part in line.split(" | ")]
    parts += re.findall(r"`([^`]+)`", sentences)
    return [part for part in parts if " " in part and part.split()[0] in COMMANDS]


@pytest.mark.parametrize("line", dict.fromkeys(_commands()))
def test_every_command_line_of_the_page_is_one_that_the_commands_accept(line: str) -> None:
    command, *words = shlex.split(line)
    parser_of(command).parse_args(words)


def test_the_page_has_a_line_of_each_command() -> None:
    names = {line.split()[0] for line in _commands()}
    assert names == {"vipu", "vipu-admin", "vipu-server", "podwright"}


def test_the_server_part_is_typed(make_pod: Callable[..., Pod]) -> None:
    pod = make_pod("--preset", "pod64")
    users, *_, check, weights = _consoles()
    for line in _typed(users):
        pod.good(*shlex.split(line.replace("--uid slurm", "--uid 64030")))
    assert (pod.folder / "kubernetes.vipu-cli.hcl").exists(), "the secret of the operator"
    with pod.client() as client:
        for guest in ("slurm", "kubernetes prod"):
            request = EnqueueRequest(guest=guest, pools=[PoolHead(cluster="pod64")])
            client.call("Enqueue", request)
    for line in _typed(check):
        pod.good(*shlex.split(line))
    wanted = _printed(weights, "vipu-admin list shares")
    for line in _typed(weights):
        said = pod.good(*shlex.split(line))
        if line == "vipu-admin list shares":
            assert said == wanted
    assert {row["weight"] for row in pod.json("vipu-admin", "list", "shares")} == {1.0}
