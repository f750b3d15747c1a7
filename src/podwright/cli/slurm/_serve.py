"""`podwright slurm serve`: the service that answers Slurm's hooks, beside slurmctld."""

from __future__ import annotations

from podwright import option_rows as opt
from podwright.cli.shared._print_result import log_to_stderr, needing
from podwright.cli.shared._verb_definition import Verb
from podwright.guests.slurm.command._pod_configure_options import SITE_FOLDER


class _ServeOptions(opt.OptionTable):
    site = opt.text("the file that configure wrote", "FILE", f"{SITE_FOLDER}/native.toml")
    command_prefix = opt.text(
        "what stands in front of each of Slurm's commands, quoted as for a shell", "WORDS"
    )
    web = opt.optional(
        "serve a page of GPU nodes instead: nodes, GPUs by job, what waits and why; needs "
        "no --site and no vipu-server, changes nothing, and answers on loopback (127.0.0.1)",
        "[HOST:]PORT",
    )


def _run(arguments: _ServeOptions) -> int:
    import asyncio
    import shlex
    from pathlib import Path

    from podwright.hosts import tell_ready

    if arguments.web is not None:
        return _web(arguments.web, arguments.command_prefix)
    from podwright.guests.slurm import ways
    from podwright.guests.slurm.hooks import serve
    from podwright.guests.slurm.service import load

    log_to_stderr()
    site = load(Path(arguments.site))
    prefix = shlex.split(arguments.command_prefix)
    asyncio.run(serve(site, prefix=prefix, make=ways.work, ready=tell_ready))
    return 0


def _web(place: str, command_prefix: str) -> int:
    import asyncio
    import shlex

    from podwright.errors import InvalidRequest
    from podwright.hosts import tell_ready
    from podwright.slurm.site.blocking_commands import ask_slurm
    from podwright.slurm.site.commands import SlurmCommands

    host, _, port = place.rpartition(":")
    if not (port.isdecimal() and int(port) < 65536):
        raise InvalidRequest(
            f"{place[:80]!r} is not a port", operation="--web", would_work="--web 8092"
        )
    with needing("pods", problem="is missing here"):
        from podwright.gpu.nodespage import Looker, serve
    prefix = shlex.split(command_prefix)

    def ready(address: str) -> None:
        print(f"GPU nodes: {address}", flush=True)
        tell_ready()

    looker = Looker(SlurmCommands(prefix), lambda words: ask_slurm([*prefix, *words]))
    asyncio.run(serve(looker, host.strip("[]") or "127.0.0.1", int(port), ready))
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
