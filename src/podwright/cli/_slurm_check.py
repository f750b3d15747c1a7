"""`podwright slurm check`: proves a set-up by small real jobs, one line for each promise."""

from __future__ import annotations

import argparse
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

    from podwright.slurm.pods import setup
    from podwright.slurm.pods.service import load

    rows = []
    for promise, check in setup.promises(load(Path(arguments.site))).items():
        problem = check()
        rows.append({"promise": promise, "kept": not problem, "problem": problem})
        if not arguments.json:
            word, why = ("NO ", f": {problem}") if problem else ("yes", "")
            print(f"{word}  {promise}{why}", flush=True)
    if arguments.json:
        import json

        print(json.dumps(rows, indent=2))
    return 0 if all(row["kept"] for row in rows) else 1
