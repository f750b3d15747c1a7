"""`podwright slurm configure` and `build`: configure Slurm for devices, and undo that."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from podwright.cli.slurm import _gpus as _slurm_gpus
from podwright.cli.slurm._serve import FOLDER

NATIVE = "/usr/local/lib/podwright"
_MODES = ("native", "plugin", "host-mapping", "static", "shared")


def add_parser(verbs: Any) -> None:
    """Add both verbs."""
    parser = verbs.add_parser(
        "configure",
        help="set up an unmodified Slurm",
        description="Shows what setting Slurm up would change; --write does it, --undo takes it "
        "back. Scripts that the site has are kept and run as before.",
    )
    parser.add_argument(
        "--mode",
        choices=_MODES,
        default="native",
        help="how jobs get devices: native; plugin (native, and jobs written for Graphcore's "
        "Slurm run unchanged); host-mapping, static or shared (docs: choosing a way)",
    )
    parser.add_argument("--slurm-conf", metavar="FILE", default="/etc/slurm/slurm.conf")
    parser.add_argument(
        "--pod",
        metavar="TYPE=CLUSTER[/ALLOCATION][@FEATURE]",
        action="append",
        default=[],
        help="what Slurm schedules, named for --gres=vipu:TYPE; may be given several times "
        "(default: all clusters). FEATURE: of the nodes that reach it, where not all do",
    )
    parser.add_argument(
        "--mapping", metavar="FILE", help="host-mapping: lines of host:machine,machine"
    )
    parser.add_argument(
        "--partition",
        metavar="NAME",
        action="append",
        default=[],
        help="static: a partition to hand over, may be given several times (default: all that "
        "are not reconfigurable); shared: the one (default: the only reconfigurable one)",
    )
    parser.add_argument(
        "--server",
        metavar="WHERE",
        default="",
        help="vipu-server's Unix socket, or tcp:HOST:PORT[,HOST:PORT] where it is on other hosts",
    )
    parser.add_argument(
        "--server-config",
        metavar="FILE",
        default="",
        help="with tcp:, settings like /etc/vipu/vipu-cli.hcl that say who `slurm serve` is there: "
        "a user's key, certificates (default: MUNGE says it)",
    )
    parser.add_argument(
        "--host",
        help="where jobs reach vipu-server (the first of tcp:, or SlurmctldHost; localhost where "
        "slurm.conf has no node on another host)",
    )
    parser.add_argument(
        "--port", type=int, help="its port (the server's own, or the first one's of tcp:)"
    )
    parser.add_argument(
        "--slurm-user", metavar="USER", help="who runs `slurm serve`, if neither root nor SlurmUser"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="",
        help="where `slurm serve` is reached by steps on nodes, and by hooks where it stands on "
        "another host than slurmctld: each shows a MUNGE credential (default: slurmctld's host and "
        "port 8092, where nodes are other hosts; several, with commas, where there are several)",
    )
    parser.add_argument("--munge-socket", metavar="PATH", default="", help="if not MUNGE's usual")
    parser.add_argument(
        "--key",
        metavar="FILE",
        default="",
        help="by which hooks and steps prove themselves over TCP instead of by MUNGE; made where "
        "there is none (default: hook.key in --folder where slurm.conf says auth/slurm)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        default="",
        help="where `slurm serve` has figures for Prometheus, such as 127.0.0.1:8093",
    )
    parser.add_argument(
        "--on-failure",
        choices=("stay", "requeue", "relocate"),
        default="stay",
        help="a job whose machine failed stays as it is, goes back to the queue, or its partition "
        "moves to healthy devices",
    )
    parser.add_argument(
        "--room-after",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="how long the first job in the queue waits for devices before a block is emptied for "
        "it, 300; 0: small jobs may pass it for ever",
    )
    parser.add_argument(
        "--default-ipus",
        metavar="N",
        help="devices of a job that does not say how many; `ask`: it is refused with what to type "
        "(default: 0, under --mode shared ask)",
    )
    parser.add_argument("--folder", metavar="DIR", default=FOLDER, help="for Podwright's own files")
    parser.add_argument("--native", metavar="DIR", default=NATIVE, help="where `build` put its own")
    parser.add_argument(
        "--hooks-socket",
        metavar="PATH",
        default="/run/podwright-slurm/slurm.sock",
        help="where `slurm serve` answers hooks: in a folder of its own",
    )
    _slurm_gpus.add_configure(parser)
    parser.add_argument("--diff", action="store_true", help="print every line that would change")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help="do it")
    group.add_argument("--undo", action="store_true", help="take it back")
    parser.set_defaults(run_slurm=_configure)

    build = verbs.add_parser(
        "build",
        help="compile the plugin and the hook",
        description="Compiles the SPANK plugin and the hook against this machine's own Slurm.",
    )
    build.add_argument("--into", metavar="DIR", default=NATIVE)
    build.add_argument(
        "--lint",
        action="store_true",
        help="only what `configure --gpus --lint` needs: a C compiler will do",
    )
    build.add_argument(
        "--include",
        metavar="DIR",
        default="",
        help="another Slurm's headers than those of the Slurm on PATH",
    )
    build.set_defaults(run_slurm=_build)


def _configure(arguments: argparse.Namespace) -> int:
    if arguments.gpus is not None:
        return _slurm_gpus.configure(arguments)
    from pathlib import Path

    from podwright.guests.slurm import setup
    from podwright.slurm.site.changes import as_diff, carry_out, summary

    places = setup.NativePlaces(
        slurm_conf=Path(arguments.slurm_conf).absolute(),
        folder=Path(arguments.folder).absolute(),
        native=Path(arguments.native).absolute(),
    )
    if arguments.undo:
        plan = setup.undo(places)
    else:
        site = _site(arguments)
        plan = setup.native(places, site, trusted=_trusted(arguments, site))
    print(as_diff(plan) if arguments.diff else summary(plan), end="")
    if not (arguments.undo or arguments.write):
        lines = "" if arguments.diff else " --diff shows each line;"
        print(f"Nothing was changed.{lines} --write makes these changes.")
        return 0
    carry_out(plan)
    print("Written. Restart slurmctld, and `scontrol reconfigure` for the nodes.")
    if arguments.undo:
        print("Before that end `podwright slurm serve`, and take back what it told Slurm:")
        print("`scontrol delete reservationname=podwright`.")
    return 0


def _site(arguments: argparse.Namespace) -> Any:
    from pathlib import Path

    from podwright.client import TIMEOUT, Address
    from podwright.errors import InvalidRequest
    from podwright.guests.slurm import setup
    from podwright.guests.slurm.hooks import addresses, reach
    from podwright.guests.slurm.service import Site

    mode = arguments.mode
    if mode == "host-mapping" and not arguments.mapping:
        raise InvalidRequest("host mapping needs a file", would_work="--mapping FILE")
    if mode not in ("native", "plugin") and arguments.on_failure == "relocate":
        raise InvalidRequest(
            f"under --mode {mode} a job's devices are where they are",
            operation="--on-failure relocate",
            would_work="--on-failure stay or requeue" if mode == "shared" else "leave it out",
        )
    conf = Path(arguments.slurm_conf).absolute()
    changes: dict[str, Any] = {}
    at = addresses(arguments.server) or (Address("localhost"),)
    if arguments.server_config and not arguments.server.startswith("tcp:"):
        raise InvalidRequest(
            "by the Unix socket the kernel says who calls",
            operation=f"--server-config {arguments.server_config}",
            would_work="--server tcp:HOST:PORT with it",
        )
    setup.check_server(conf, arguments.server)
    door = {
        "server": arguments.server,
        "credentials": str(Path(arguments.server_config).absolute())
        if arguments.server_config
        else "",
        "munge_socket": arguments.munge_socket or setup.munge_socket(conf),
    }
    port = arguments.port
    with reach(Site(**door), TIMEOUT) as client:
        if not port:
            # A Unix socket has no port, and a server may use any, so the server is asked for its
            # own.
            own = 0 if addresses(arguments.server) else client.get_server_info().port
            port = own or at[0].port
        if mode == "host-mapping":
            path = Path(arguments.mapping)
            try:
                text = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is no text"
                raise InvalidRequest(f"{path}: {reason}", operation="read the mapping") from None
            changes["hosts"] = setup.mapping(client, text, str(path))
        elif mode == "static":
            changes["partitions"] = setup.shelf(client, arguments.partition)
        elif mode == "shared":
            changes["shared"], pod = setup.shared(client, arguments.partition)
            changes["pods"] = (pod,)
        else:
            changes["pods"] = setup.survey(client, arguments.pod)
    return Site(
        mode=mode,
        socket=arguments.hooks_socket,
        host=setup.server_host(
            Path(arguments.slurm_conf),
            arguments.host,
            at[0].host if addresses(arguments.server) else None,
        ),
        window_s=setup.window(Path(arguments.slurm_conf)),
        port=port,
        fallen=arguments.on_failure,
        room_s=arguments.room_after,
        default_ipus=_default_ipus(arguments, changes.get("pods", ())),
        listen=arguments.listen or setup.far_door(conf),
        key=_key(arguments),
        slurm_user=setup.slurm_user(conf),
        metrics=arguments.metrics,
        **door,
        **changes,
    )


def _key(arguments: argparse.Namespace) -> str:
    """Return the file of the key; empty when MUNGE is used instead."""
    from pathlib import Path

    from podwright.guests.slurm import setup

    if arguments.key:
        return str(Path(arguments.key).absolute())
    if not setup.without_munge(Path(arguments.slurm_conf)):
        return ""
    return str(Path(arguments.folder).absolute() / "hook.key")


def _default_ipus(arguments: argparse.Namespace, pods: Sequence[Any]) -> int:
    """Return the devices of a job that names none; -1: such a job is refused. Raises
    InvalidRequest.
    """
    from podwright.errors import InvalidRequest

    text = arguments.default_ipus
    if text is None:
        return -1 if arguments.mode == "shared" else 0
    if text == "ask":
        return -1
    action = f"--default-ipus {text}"
    if not pods:
        raise InvalidRequest(
            f"under --mode {arguments.mode} jobs do not ask by --ipus",
            operation=action,
            would_work="leave it out",
        )
    size = int(text) if text.isdecimal() else -1
    # In other modes, a job's tasks learn from the option itself that they have a partition.
    sizes = [1 << order for order in pods[0].orders] if arguments.mode == "shared" else []
    if size not in (0, *sizes):
        raise InvalidRequest(
            f"under --mode {arguments.mode} no job could have that",
            operation=action,
            would_work=f"ask, 0 or one of {', '.join(map(str, sizes))}" if sizes else "ask or 0",
        )
    return size


def _trusted(arguments: argparse.Namespace, site: Any) -> tuple[int, ...]:
    """Return who may change a job's Podwright fields: root, SlurmUser, and the service's user."""
    import pwd

    from podwright.errors import InvalidRequest
    from podwright.guests.slurm.hooks import slurm_uid

    uids = {0, slurm_uid(site)}
    if arguments.slurm_user:
        try:
            uids.add(pwd.getpwnam(arguments.slurm_user).pw_uid)
        except KeyError:
            raise InvalidRequest(f"there is no user {arguments.slurm_user}") from None
    return tuple(sorted(uids))


def _build(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    if arguments.lint:
        from podwright.gpu import submission

        print(submission.build(Path(arguments.into)))
        return 0
    from podwright.guests.slurm.setup import build

    for path in build(Path(arguments.into), include=arguments.include):
        print(path)
    return 0
