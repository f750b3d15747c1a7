"""`podwright slurm check`: proves a configuration by small real jobs, one line for each promise."""

from __future__ import annotations

import argparse
from typing import Any

from podwright.cli.slurm import _gpus as _slurm_gpus
from podwright.cli.slurm._serve import FOLDER


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "check",
        help="prove the set-up with small real jobs",
        description="Runs small real jobs, and says of each promise whether it is kept. Exit code "
        "1 where one is not.",
    )
    parser.add_argument("--site", metavar="FILE", default=f"{FOLDER}/native.toml")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="test only the promises that contain this text"
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long a small job may take, 60; longer on a full cluster",
    )
    _slurm_gpus.add_check(parser)
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.gpus:
        return _slurm_gpus.check(arguments)
    from pathlib import Path

    from podwright.errors import InvalidRequest
    from podwright.guests.slurm import setup
    from podwright.guests.slurm.service import load

    site = Path(arguments.site).absolute()
    checks = setup.promises(load(site), site.parent, arguments.wait)
    chosen = [check for check in checks if arguments.only.lower() in check.lower()]
    if not chosen:
        raise InvalidRequest(
            f"no promise has {arguments.only!r} in it",
            operation=f"--only {arguments.only}",
            would_work="; ".join(checks),
        )
    rows = []
    for promise in chosen:
        check = checks[promise]
        problem = check()
        rows.append({"promise": promise, "kept": not problem, "problem": problem})
        if not arguments.json:
            word, explanation = ("NO ", f": {problem}") if problem else ("yes", "")
            print(f"{word}  {promise}{explanation}", flush=True)
    if arguments.json:
        import json

        print(json.dumps(rows, indent=2))
    return 0 if all(row["kept"] for row in rows) else 1
