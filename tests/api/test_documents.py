"""The examples in the pages on Python are run unchanged, and links lead to existing targets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole.conftest import Pod as Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("python.md", "coming-from.md", "api.md")]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def _parts() -> list[str]:
    return [block for page in PAGES for block in blocks(page)]


@pytest.mark.parametrize("number", range(len(_parts())))
def test_examples_run_as_they_stand(server: Server, tmp_path: Path, number: int) -> None:
    part = _parts()[number]
    path = tmp_path / "example.py"
    path.write_text(part)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, part + done.stderr
    for shown in re.findall(r"^```text\n(.*?)^```$", PAGES[0].read_text(), re.M | re.S):
        if "replicas=8" in part:
            assert done.stdout == shown


def test_options_that_stand_for_another_tools_are_there() -> None:
    """Right of each table's line: poprun's."""
    from podwright.launcher import OPTIONS

    rows = re.findall(r"^\| .* \| (.*) \|$", PAGES[1].read_text(), re.MULTILINE)
    codes = [code for row in rows for code in re.findall(r"`([^`]*)`", row)]
    named = {name for code in codes for name in re.findall(r"(?<!\S)--[a-z-]+", code)}
    assert len(named) > 10
    assert named <= {option.name for option in OPTIONS}


def test_links_lead_to_files_that_are_there() -> None:
    """Of the pages that Sphinx does not build; those that it does, it checks itself."""
    found = 0
    for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target, anchor in re.findall(r"\]\(([^)#\s]+)#?([^)\s]*)", (ROOT / name).read_text()):
            if "://" not in target:
                found += 1
                assert (ROOT / target).exists(), f"{name}: {target}"
                assert not anchor or anchor in _anchors(ROOT / target), f"{name}: {target}#{anchor}"
    assert found > 20


def _anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as GitHub and Sphinx write them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_pictures_are_text_and_load_nothing_from_elsewhere() -> None:
    from tools.pictures import (
        FOLDER,
        GPU_LINES,
        LINES,
        ON_THE_POD,
        PARTITION_LINES,
        PLAN_LINES,
        floors,
        house,
    )

    for floor in floors():
        assert f">{floor}<" in house()
    first = (FOLDER / "first.svg").read_text()
    for line in LINES:
        assert line.split()[0] in first
    for name, lines in (("partitions", PARTITION_LINES), ("poprun", PLAN_LINES)):
        shown = re.sub(r"<[^>]*>", " ", (FOLDER / f"{name}.svg").read_text())
        picture_text = " ".join(shown.replace("&#160;", " ").split())
        for line in lines:
            assert line in picture_text, "however its lines are folded"
    gpu = (FOLDER / "gpu.svg").read_text()
    for line in GPU_LINES:
        assert line.split()[2] in gpu
    top = (FOLDER / "top.svg").read_text()
    for line in ON_THE_POD[:-1]:
        assert line.split()[3] in top
    for picture in FOLDER.glob("*.svg"):
        assert "url(http" not in picture.read_text()
        assert "href" not in picture.read_text()
