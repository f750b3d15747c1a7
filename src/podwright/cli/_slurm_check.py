"""`podwright slurm check`: proves a set-up by small real jobs, one line for each promise."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from podwright.cli import _slurm_gpus
from podwright.cli._slurm_serve import FOLDER

if TYPE_CHECKING:
    from podwright.slurm.service import Site


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

    checks = _checks(load(Path(arguments.site)))
    bad = 0
    for promise, check in checks.items():
        problem = check()
        bad += bool(problem)
        print(f"{'NO ' if problem else 'yes'}  {promise}{': ' + problem if problem else ''}")
    return 1 if bad else 0


def _checks(site: Site) -> dict[str, Callable[[], str]]:
    """What a site's mode promises."""
    plain: dict[str, Callable[[], str]] = {"jobs without devices run as ever": _plain}
    if site.mode == "host-mapping":
        host = site.hosts[0]
        return {"a job gets the machines of its host": lambda: _allocated(host.name)}
    if site.mode == "static":
        sizes = {one.size for one in site.partitions}
        none, some = f"--gres=vipu:{max(sizes) + 1}", f"--gres=vipu:{min(sizes)}"
        names = [one.name for one in site.partitions if one.size == min(sizes)]
        return {
            "the counts of partitions are told to Slurm": lambda: _reservation("vipu_"),
            "a size that there is not is refused": lambda: _refused(none, "and there is none"),
            "a job's task finds its partition": lambda: _runs(some, *names),
            **plain,
        }
    pod = site.pods[0]
    name = site.shared or "slurm_"
    if site.unsaid < 0:
        plain = {
            "a job that names no devices is told what to type": lambda: _refused("-n1", "--ipus=N"),
            "jobs without devices run as ever": lambda: _plain("--ipus=0"),
        }
    elif site.unsaid:
        plain = {"a job that names no devices gets the site's": lambda: _runs("-n1", name)}
    return {
        "the counts of devices are told to Slurm": lambda: _reservation("podwright_het_wait"),
        "a request above the pod is refused": lambda: _refused(
            f"--ipus={2 * pod.devices}", "podwright: --ipus"
        ),
        "a job and its task find their partition": lambda: _runs("--ipus=1", name),
        **plain,
    }


def _said(*argv: str) -> tuple[int, str]:
    import subprocess

    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, " ".join((done.stdout + " " + done.stderr).split())


def _reservation(licence: str) -> str:
    code, said = _said("scontrol", "show", "reservation", "podwright")
    return said[:200] if code or licence not in said else ""


def _refused(option: str, why: str) -> str:
    code, said = _said("sbatch", "--test-only", option, "--wrap=true")
    return "" if code and why in said else f"it was not: {said[:200]}"


def _runs(option: str, *names: str) -> str:
    code, said = _said("srun", option, "-n1", "sh", "-c", "echo $IPUOF_VIPU_API_PARTITION_ID")
    found = said.split()[:1] or [""]
    good = not code and any(found[0].startswith(name) for name in names)
    return "" if good else said[:200] or "none in its environment"


def _allocated(host: str) -> str:
    code, said = _said("srun", "-w", host, "-n1", "sh", "-c", "echo $PODWRIGHT_ALLOCATION")
    return "" if not code and said.startswith("c") else said[:200] or "none in its environment"


def _plain(*options: str) -> str:
    code, said = _said("srun", "-n1", *options, "true")
    return said[:200] if code else ""
