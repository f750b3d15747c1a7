"""Another package adds a family with a block rule of its own, and a rule for job scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podwright import plugins
from podwright.errors import Unavailable
from podwright.fabric import family_named

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
RINGS = """
name = "rings"
family = "acme-ring"

[[link_domains]]
name = "d0"
machines = ["r1", "r2"]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example was installed into, as pip does it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source")
    hatch = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(hatch, cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--disable-pip-version-check", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(pip, check=True, timeout=300)
    return folder / "site"


def run(installed: Path, *words: str, code: int = 0, text: str = "") -> str:
    """What a command says where the package is installed."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(installed)},
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_rule_is_listed_and_finds(installed: Path) -> None:
    lint = ("-m", "podwright.cli.podwright", "slurm", "lint")
    assert "acme-mail" in run(installed, *lint, "--rules")
    script = "#!/bin/bash\n#SBATCH --mail-user=me@home.example\nsrun ./a\n"
    assert ": acme-mail: " in run(installed, *lint, "-", text=script, code=1)
    script = script.replace("home", "acme")
    assert "acme-mail" not in run(installed, *lint, "-", text=script)


def test_a_family_places_by_its_own_rule(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / "rings.toml"
    file.write_text(RINGS)
    program = (
        "import sys\n"
        "from podwright.fabric import load_cluster\n"
        "from podwright.placement import Refusal, Request, index_of\n"
        "index = index_of(load_cluster(sys.argv[1]))\n"
        "print(index.allocate(Request(4)).blocks)\n"
        "refused = index.plan(Request(2))\n"
        "assert isinstance(refused, Refusal) and refused.never\n"
        "print(refused.rule, refused.nearest_sizes)\n"
        "print(index.allocate(Request(4)).blocks, index.free())\n"
    )
    said = run(installed, "-c", program, str(file)).splitlines()
    assert said[1] == "rings are given out whole, 4 devices each (4,)"
    assert said[0] != said[2].rpartition(" ")[0]
    assert said[2].endswith(" 0")


def test_without_it_nothing_is_added() -> None:
    assert family_named("acme-ring") is None
    assert plugins.names(plugins.LINT_RULES) == ()


def test_a_broken_one_is_named(installed: Path) -> None:
    """Its error says which package is at fault, and what to do."""
    program = (
        "from podwright import plugins\n"
        "from podwright.errors import Unavailable\n"
        "try:\n    plugins.load(plugins.FAMILIES, 'acme-ring', int)\n"
        "except Unavailable as error:\n    print(error.message)\n"
    )
    said = run(installed, "-c", program)
    assert "RING of acme-pods cannot be used: it is a Family, and not a int" in said
    assert "pip uninstall acme-pods" in said
    assert issubclass(Unavailable, Exception)
