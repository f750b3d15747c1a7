"""`podwright slurm twin`: the service that asks Slurm itself, and its state."""

from __future__ import annotations

import argparse
from typing import Any

from podwright.cli.shared._arguments import Parser, positive, seconds

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


def add_parser(verbs: Any) -> None:
    """Add the verb and its own verbs."""
    parser: Parser = verbs.add_parser(
        "twin", help="run the service that asks Slurm itself what it would do"
    )
    below = parser.add_subparsers(
        metavar="VERB", dest="twin_verb", required=True, prog="podwright slurm twin"
    )
    serve: Parser = below.add_parser(
        "serve",
        help="answer what Slurm would do with a request, as the cluster stands now",
        description=_SERVE,
        epilog=_EXAMPLES,
    )
    serve.add_argument("--socket", metavar="PATH", help="(/run/podwright-twin/twin.sock)")
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="",
        help="answer users of other machines, too: each shows a MUNGE credential",
    )
    serve.add_argument("--munge-socket", metavar="PATH", default="", help="if not MUNGE's usual")
    serve.add_argument(
        "--user",
        metavar="USER",
        default="",
        help="whom it becomes where root starts it (a number that no account has)",
    )
    serve.add_argument(
        "--every",
        metavar="SECONDS",
        type=seconds,
        default=3.0,
        help="how often the state is copied (3)",
    )
    serve.add_argument(
        "--workers",
        metavar="N",
        type=positive,
        default=2,
        help="private copies of slurmctld at a time: one answers, the others are ready (2)",
    )
    serve.add_argument(
        "--slurm", metavar="PREFIX", default="", help="where Slurm is, if not where packages put it"
    )
    serve.add_argument(
        "--command-prefix",
        metavar="WORDS",
        default="",
        help="what stands in front of each of Slurm's commands, quoted as for a shell",
    )
    serve.set_defaults(run_slurm=_serve)
    status: Parser = below.add_parser("status", help="say whether such a service answers")
    status.add_argument(
        "--twin",
        metavar="PLACE",
        default="",
        help="its socket, or HOST:PORT (PODWRIGHT_TWIN, /etc/podwright/twin.conf, or this "
        "machine's socket)",
    )
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run_slurm=_status)


def _serve(arguments: argparse.Namespace) -> int:
    import logging
    import shlex
    import sys
    from pathlib import Path

    from podwright.errors import Unavailable
    from podwright.hosts import tell_ready
    from podwright.slurm.site.ask import ask_slurm
    from podwright.slurm.twin_service import SOCKET

    try:
        from podwright.slurm.twin_service._serve_twins import TwinServeOptions, serve_twins
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"{error.name} is missing here", would_work="pip install 'podwright[pods]'"
        ) from None
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    prefix = shlex.split(arguments.command_prefix)

    def ready(place: str) -> None:
        print(f"Asks Slurm for users at {place}", flush=True)
        tell_ready()

    options = TwinServeOptions(
        socket=Path(arguments.socket or SOCKET).absolute(),
        listen=arguments.listen,
        munge_socket=arguments.munge_socket,
        user=arguments.user,
        interval=arguments.every,
        workers=arguments.workers,
        slurm=arguments.slurm,
    )
    serve_twins(options, lambda words: ask_slurm([*prefix, *words]), ready)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from podwright.errors import Unavailable
    from podwright.slurm.twin_service import find_twin_service

    service = find_twin_service(arguments.twin)
    if service is None:
        raise Unavailable(
            "no twin service is known to this machine",
            would_work="Start `podwright slurm twin serve` beside slurmctld, and name it here by "
            "--twin, PODWRIGHT_TWIN or /etc/podwright/twin.conf",
        )
    status = service.status()
    if arguments.json:
        import json

        print(json.dumps({"place": service.place, **status}, indent=2))
        return 0
    print(f"At {service.place}: Slurm {status['release']}, {status['warm']} warm.")
    if status["age"] is None:
        print(f"It answers with all nodes idle: {status['no_state']}.")
    else:
        print(f"It answers with the state of {status['age']} s ago.")
    print(
        f"{status['answered']} questions answered, {status['refused']} refused, "
        f"{status['failed']} failed; {status['waiting']} wait."
    )
    return 0
