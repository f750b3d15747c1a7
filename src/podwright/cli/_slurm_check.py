"""`podwright slurm check`: proves a set-up by small real jobs, one line for each promise."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from podwright.cli import _slurm_gpus
from podwright.cli._slurm_serve import FOLDER


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "check",
        help="prove the set-up with small real jobs",
        description="Runs small real jobs, and says of each promise whether it is kept. Exit code "
        "1 where one is not.",
    )
    parser.add_argument("--site", metavar="FILE", default=f"{FOLDER}/native.toml")
    _slurm_gpus.add_check(parser)
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.gpus:
        return _slurm_gpus.check(arguments)
    from pathlib import Path

    from podwright.slurm.service import load

    pod = load(Path(arguments.site)).pods[0]
    checks: dict[str, Callable[[], str]] = {
        "the counts of devices are told to Slurm": _reservation,
        "a request above the pod is refused": lambda: _refused(2 * pod.devices),
        "a job and its task find their partition": _runs,
        "jobs without devices run as ever": _plain,
    }
    bad = 0
    for promise, check in checks.items():
        problem = check()
        bad += bool(problem)
        print(f"{'NO ' if problem else 'yes'}  {promise}{': ' + problem if problem else ''}")
    return 1 if bad else 0


def _said(*argv: str) -> tuple[int, str]:
    import subprocess

    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, " ".join((done.stdout + " " + done.stderr).split())


def _reservation() -> str:
    code, said = _said("scontrol", "show", "reservation", "podwright")
    return said[:200] if code or "podwright_het_wait" not in said else ""


def _refused(devices: int) -> str:
    code, said = _said("sbatch", "--test-only", f"--ipus={devices}", "--wrap=true")
    return "" if code and "podwright: --ipus" in said else f"it was not: {said[:200]}"


def _runs() -> str:
    code, said = _said("srun", "--ipus=1", "-n1", "sh", "-c", "echo $IPUOF_VIPU_API_PARTITION_ID")
    return "" if not code and said.startswith("slurm_") else said[:200] or "none in its environment"


def _plain() -> str:
    code, said = _said("srun", "-n1", "true")
    return said[:200] if code else ""
