"""Every command on the pages about GPU nodes is one that this version takes."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from podwright.cli.podwright import build_parser
from podwright.gpu.health import all_checks, read_settings

DOCS = Path(__file__).parents[2] / "docs" / "slurm"
PAGES = ("gpu-health.md", "gpu-efficiency.md", "recovery.md")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.S)


def commands() -> list[tuple[str, ...]]:
    found = []
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.splitlines():
                words = shlex.split(line.replace("$SLURM_JOB_ID", "7"), comments=True)
                if "podwright" in words:
                    words = words[words.index("podwright") + 1 :]
                    end = words.index(">") if ">" in words else len(words)
                    found.append(tuple(words[:end]))
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_of_a_page_is_taken(words: tuple[str, ...]) -> None:
    assert build_parser(words).parse_args(list(words)).verb == words[0]


def test_the_settings_of_the_page_are_taken(tmp_path: Path) -> None:
    (text,) = blocks("gpu-health.md", "toml")
    assert tomllib.loads(text)["cap"] == 5
    path = tmp_path / "node-health.toml"
    path.write_text(text)
    settings = read_settings(str(path), frozenset(all_checks()))
    assert settings.check("links").level == "warn"
    assert settings.act == "warn"


def test_the_pages_have_commands_to_type() -> None:
    assert len(commands()) > 8
