"""`podwright slurm serve`: the service that answers Slurm's hooks, beside slurmctld."""

from __future__ import annotations

from podwright.cli.shared._print_result import log_to_stderr
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt
from podwright.guests.slurm.command._pod_configure_options import SITE_FOLDER


class _ServeOptions(opt.OptionTable):
    site = opt.text("the file that configure wrote", "FILE", f"{SITE_FOLDER}/native.toml")
    command_prefix = opt.text(
        "what stands in front of each of Slurm's commands, quoted as for a shell", "WORDS"
    )


def _run(arguments: _ServeOptions) -> int:
    import asyncio
    import shlex
    from pathlib import Path

    from podwright.guests.slurm import ways
    from podwright.guests.slurm.hooks import serve
    from podwright.guests.slurm.service import load
    from podwright.hosts import tell_ready

    log_to_stderr()
    site = load(Path(arguments.site))
    prefix = shlex.split(arguments.command_prefix)
    asyncio.run(serve(site, prefix=prefix, make=ways.work, ready=tell_ready))
    return 0


VERBS = (
    Verb(
        "serve",
        _ServeOptions,
        _run,
        help="answer Slurm's hooks, and keep its counts true",
        description="Answers Slurm's hooks, keeps its counts of devices true, and settles what "
        "hooks missed. Runs where slurmctld runs, as root or as Slurm's user.",
    ),
)
