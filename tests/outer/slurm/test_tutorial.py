"""README and the quickstarts as printed, from a release alone: each line typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.release import ROOT, build, commit_time, export

from tests.outer.lab import Release
from tests.outer.machine import Machine
from tests.pages import Block, blocks

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive of what is committed, and nothing else."""
    folder = tmp_path_factory.mktemp("release")
    build(export(ROOT, folder / "scratch"), folder / "dist", commit_time(ROOT, "HEAD"))
    assert {"".join(path.suffixes[-2:]) for path in (folder / "dist").iterdir()} >= {".tar.gz"}
    return folder / "dist"


@pytest.mark.parametrize(
    "release", ["newest", pytest.param("oldest", marks=pytest.mark.soak)], indirect=True
)
def test_every_line_of_the_tutorial_prints_what_the_page_shows(
    release: Release, artifacts: Path, tmp_path: Path
) -> None:
    with Machine(release, tmp_path, artifacts) as machine:
        for block in blocks(ROOT / "docs" / "tutorial.md"):
            machine.type(block)


@pytest.mark.parametrize("release", ["oldest"], indirect=True)
def test_every_line_of_readme_and_of_the_laptop_page_runs(
    release: Release, artifacts: Path, tmp_path: Path
) -> None:
    """What they print is compared in tests/whole/test_readme.py; `make demo` needs a checkout."""
    install, *laptop = blocks(ROOT / "docs" / "laptop.md")
    readme = blocks(ROOT / "README.md")[0].typed.splitlines()[2:]
    with Machine(release, tmp_path, artifacts) as machine:
        machine.type(Block("export HOME=/home; cp -r /src /home/release; cd /home/release", None))
        for line in install.typed.splitlines():  # on a busy machine each may take a while
            machine.type(Block(line, None))
        for line in readme:
            found = "|| test $? = 1" if "slurm lint" in line else ""
            machine.type(Block(f"{line} {found}", None))
        for block in laptop:
            if block.typed != "podwright web\n":  # it serves until it is ended
                machine.type(Block(block.typed, None))


def test_the_installation_on_each_page_names_files_of_a_release(artifacts: Path) -> None:
    for page in ("tutorial.md", "laptop.md", "slurm/gpu-quickstart.md"):
        named = re.findall(r"podwright-[\d.]+(?:-py3-none-any\.whl|\.tar\.gz)", page_text(page))
        assert named, page
        assert all((artifacts / name).is_file() for name in named), page


def page_text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()
