"""The figures in CONTRIBUTING.md and house.md are those of the files that they speak of."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import limits

from podwright.slurm.site.releases import NEWEST_RELEASE, OLDEST_RELEASE

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")


def text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def of_makefile(target: str) -> str:
    """The number of workers on each core, in words."""
    match = re.search(rf"(?m)^{target}: .*##.*(?:\n\t.*)*?echo \$\$\(\((\d+) \* ", text("Makefile"))
    assert match is not None
    return WORDS[int(match[1])]


def release(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]:02}"


@pytest.mark.parametrize(
    ("file", "shown", "figure"),
    [
        (
            "CONTRIBUTING.md",
            r"`make test-outer` runs (\w+) files at once on each core",
            lambda: of_makefile("test-outer"),
        ),
        (
            "Makefile",
            r"# (\w+) files at once on each core",
            lambda: of_makefile("test-outer").capitalize(),
        ),
        (
            "Makefile",
            r"# (\w+) workers for each core",
            lambda: of_makefile("test").capitalize(),
        ),
        ("CONTRIBUTING.md", r"A package has at most (\d+) files", lambda: limits.PACKAGE_FILES),
        (
            "docs/design/house.md",
            r"A package has at most (\d+) files",
            lambda: limits.PACKAGE_FILES,
        ),
        ("CONTRIBUTING.md", r"`oldest` \(([\d.]+)\)", lambda: release(OLDEST_RELEASE)),
        ("CONTRIBUTING.md", r"`newest` \(([\d.]+),", lambda: release(NEWEST_RELEASE)),
    ],
)
def test_a_figure_is_what_its_source_has(
    file: str, shown: str, figure: Callable[[], object]
) -> None:
    assert re.findall(shown, text(file)) == [str(figure())]


def test_the_floors_of_the_page_are_those_that_are_enforced() -> None:
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (
        contract["layers"] for contract in contracts if contract.get("containers") == ["podwright"]
    )
    enforced = [floor for layer in layers for floor in re.split(r" [|:] ", layer)]
    block = text("docs/design/house.md").split("```\n")[1]
    shown = [line.split()[0].rstrip("/").removesuffix(".py") for line in block.splitlines()]
    assert sorted(shown) == sorted(enforced)
