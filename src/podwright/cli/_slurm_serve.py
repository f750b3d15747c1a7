"""`podwright slurm serve`: what hooks ask, beside slurmctld."""

from __future__ import annotations

import argparse
from typing import Any

FOLDER = "/etc/podwright/slurm"


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "serve",
        help="answer Slurm's hooks, and keep its counts true",
        description="Answers Slurm's hooks, keeps its counts of devices true, and settles what "
        "hooks missed. Runs where slurmctld runs, as root or as Slurm's user.",
    )
    parser.add_argument(
        "--site", metavar="FILE", default=f"{FOLDER}/native.toml", help="what configure wrote"
    )
    parser.add_argument(
        "--command-prefix",
        metavar="WORDS",
        default="",
        help="what stands in front of each of Slurm's commands, quoted as for a shell",
    )
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    import asyncio
    import logging
    import shlex
    import sys
    from pathlib import Path

    from podwright.hosts import tell_ready
    from podwright.slurm.pods import ways
    from podwright.slurm.pods.service import load, serve

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    site = load(Path(arguments.site))
    prefix = shlex.split(arguments.command_prefix)
    asyncio.run(serve(site, prefix=prefix, make=ways.work, ready=tell_ready))
    return 0
