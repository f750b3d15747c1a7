"""`podwright slurm check`: proves a configuration by small real jobs, one line for each promise."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import Verb
from podwright.cli.slurm import _configure_gpus
from podwright.cli.slurm._configure_gpus import CheckOptions


def _run(arguments: CheckOptions) -> int:
    if arguments.gpus:
        return _configure_gpus.check(arguments)
    from pathlib import Path

    from podwright.errors import InvalidRequest
    from podwright.guests.slurm import setup
    from podwright.guests.slurm.service import load

    site = Path(arguments.site).absolute()
    checks = setup.promises(load(site), site.parent, arguments.wait, arguments.user)
    chosen = [check for check in checks if arguments.only.lower() in check.lower()]
    if not chosen:
        raise InvalidRequest(
            f"no promise has {arguments.only!r} in it",
            operation=f"--only {arguments.only}",
            would_work="; ".join(checks),
        )
    promises = ((promise, checks[promise]()) for promise in chosen)
    return _configure_gpus.show_promises(promises, arguments.json)


VERBS = (
    Verb(
        "check",
        CheckOptions,
        _run,
        help="prove the set-up with small real jobs",
        description="Runs small real jobs, and says of each promise whether it is kept, or that it "
        "could not be tried. Exit code 1 where one is not kept.",
    ),
)
