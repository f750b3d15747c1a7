"""`podwright slurm twin`: the service that asks Slurm itself, and its state."""

from __future__ import annotations

from podwright.cli.shared._print_result import log_to_stderr, needing, show_result
from podwright.cli.shared._verb_definition import Verb, VerbGroup
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive, seconds

_SERVE = """\
Answers what Slurm would do with a request, as the cluster stands now: explain-request asks it by
itself. It starts private copies of slurmctld with the state of the real one, and changes nothing.

Start it beside slurmctld as root: it copies the state every few seconds and answers as a user of
its own. Users of this machine reach it by its socket, where the kernel says who asks; with --listen
users of other machines do, each with a MUNGE credential. Nobody asks as somebody else but root and
SlurmUser. What PrivateData hides in Slurm is hidden here: where it hides nodes, users are answered
with all nodes idle."""
_EXAMPLES = """\
examples:
  podwright slurm twin serve
  podwright slurm twin serve --listen head:8094
  echo 'server = head:8094' >/etc/podwright/twin.conf    (on login nodes)"""


class _ServeOptions(opt.OptionTable):
    socket = opt.optional("(/run/podwright-twin/twin.sock)", "PATH")
    listen = opt.text(
        "answer users of other machines, too: each shows a MUNGE credential", "HOST:PORT"
    )
    munge_socket = opt.text("MUNGE's socket, if it is not the usual one", "PATH")
    user = opt.text("the user that it becomes if root starts it (a uid without account)", "USER")
    interval = opt.value(
        "how often the state is copied (3)", "SECONDS", seconds, 3.0, name="--every"
    )
    workers = opt.value(
        "private copies of slurmctld at a time: one answers, the others are ready (2)",
        "N",
        positive,
        2,
    )
    slurm = opt.text("where Slurm is, if not where packages put it", "PREFIX")
    command_prefix = opt.text(
        "what stands in front of each of Slurm's commands, quoted as for a shell", "WORDS"
    )


class _StatusOptions(opt.OptionTable):
    twin = opt.text(
        "its socket, or HOST:PORT (PODWRIGHT_TWIN, /etc/podwright/twin.conf, or this "
        "machine's socket)",
        "PLACE",
    )
    json = opt.JSON


def _serve(arguments: _ServeOptions) -> int:
    import shlex
    from pathlib import Path

    from podwright.hosts import tell_ready
    from podwright.slurm.site.blocking_commands import ask_slurm
    from podwright.slurm.twin_service import SOCKET

    with needing("pods", problem="is missing here"):
        from podwright.slurm.twin_service._serve_twins import TwinServeOptions, serve_twins
    log_to_stderr()
    prefix = shlex.split(arguments.command_prefix)

    def ready(place: str) -> None:
        print(f"Asks Slurm for users at {place}", flush=True)
        tell_ready()

    options = TwinServeOptions(
        socket=Path(arguments.socket or SOCKET).absolute(),
        listen=arguments.listen,
        munge_socket=arguments.munge_socket,
        user=arguments.user,
        interval=arguments.interval,
        workers=arguments.workers,
        slurm=arguments.slurm,
    )
    serve_twins(options, lambda words: ask_slurm([*prefix, *words]), ready)
    return 0


def _status(arguments: _StatusOptions) -> int:
    from podwright.errors import Unavailable
    from podwright.slurm.twin_service import find_twin_service
    from podwright.slurm.twin_service._status_text import status_text

    service = find_twin_service(arguments.twin)
    if service is None:
        raise Unavailable(
            "no twin service is known to this machine",
            would_work="Start `podwright slurm twin serve` beside slurmctld, and name it here by "
            "--twin, PODWRIGHT_TWIN or /etc/podwright/twin.conf",
        )
    status = service.status()
    value = {"place": service.place, **status}
    show_result(arguments.json, value, lambda: status_text(service.place, status))
    return 0


VERBS = (
    VerbGroup(
        "podwright slurm twin",
        "run the service that asks Slurm itself what it would do",
        verbs=(
            Verb(
                "serve",
                _ServeOptions,
                _serve,
                help="answer what Slurm would do with a request, as the cluster stands now",
                description=_SERVE,
                epilog=_EXAMPLES,
            ),
            Verb("status", _StatusOptions, _status, help="say whether such a service answers"),
        ),
    ),
)
