"""`podwright slurm serve-lint`: says at submission what lint finds in a job script."""

from __future__ import annotations

import argparse
from typing import Any

SOCKET = "/run/podwright-lint/lint.sock"


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    from podwright.cli._arguments import positive

    parser = verbs.add_parser(
        "serve-lint",
        help="read job scripts at submission, for job_submit",
        description="Answers job_submit.lua, which `configure --gpus --lint` writes. Runs where "
        "slurmctld runs, as any user: only root, SlurmUser and its own user are answered.",
    )
    parser.add_argument("--socket", metavar="PATH", default=SOCKET)
    parser.add_argument(
        "--slurm-user", metavar="USER", help="who runs slurmctld (SlurmUser, or the user slurm)"
    )
    parser.add_argument(
        "--workers", type=positive, metavar="N", default=2, help="scripts read at a time (2)"
    )
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    import logging
    import os
    import sys
    import time
    from pathlib import Path

    from podwright.cli._slurm_lint import cache
    from podwright.errors import Unavailable
    from podwright.hosts import tell_ready
    from podwright.slurm.gpus.lint import find_site
    from podwright.slurm.gpus.submission import serve
    from podwright.slurm.site.ask import ask_slurm

    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    # Limits of partitions Slurm itself tells at submission.
    site = find_site(ask_slurm, cache(), time.time())._replace(partitions={})
    askers = frozenset({0, os.geteuid(), _slurm_user(arguments.slurm_user)})
    try:
        serve(Path(arguments.socket), site, askers, workers=arguments.workers, ready=tell_ready)
    except OSError as error:
        raise Unavailable(
            f"{error.filename or arguments.socket}: {error.strerror}",
            asked="answer job_submit",
            would_work="--socket=PATH in a folder that this user may write to",
        ) from error
    return 0


def _slurm_user(named: str | None) -> int:
    """The uid of slurmctld. Raises InvalidRequest for a user that is not there."""
    import pwd
    import re

    from podwright.errors import InvalidRequest
    from podwright.slurm.site.ask import ask_slurm

    if not named:
        said = re.search(
            r"^SlurmUser\s*=\s*\S*\((\d+)\)", ask_slurm(["scontrol", "show", "config"]), re.M
        )
        if said:
            return int(said[1])
    try:
        return pwd.getpwnam(named or "slurm").pw_uid
    except KeyError:
        if named:
            raise InvalidRequest(f"there is no user {named}", asked="--slurm-user") from None
        return 0
