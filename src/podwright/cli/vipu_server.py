"""`vipu-server`: serves partitions of a pod. Parses, says what it serves, and serves.

Named like V-IPU's controller. Its options beyond --api-host and --api-port are our choice, since
that one's are not public.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.cli._arguments import Parser, complain, port, run, seconds

if TYPE_CHECKING:
    from pathlib import Path

    from podwright.page import SiteProxy
    from podwright.server import ServedHardware, Server, ServingOptions

#: Seconds without partition, lease or call after which a user's own server ends.
USER_IDLE = 300.0

_EXAMPLES = """\
examples:
  vipu-server                        what its store holds, else what vipu-admin defines
  vipu-server --preset pod64         a simulated POD64
  vipu-server --cluster-file pod.toml --storage pod.db
  vipu-server --api-host 10.0.0.1 --listen-anywhere

A restart serves what its store holds, and leaves running programs untouched.
SIGTERM and Ctrl-C end it; calls under way are finished first."""


def build_parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="vipu-server", description="Serve partitions of a pod.", epilog=_EXAMPLES)
    parser.add_argument(
        "--config-file", metavar="FILE", help="these options from a TOML file; those here go first"
    )
    what = parser.add_argument_group("what to serve").add_mutually_exclusive_group()
    what.add_argument(
        "--preset", metavar="NAME", help="simulated: pod4 to pod256, hgx8, hgx8x4, nvl72"
    )
    what.add_argument(
        "--cluster-file",
        metavar="FILE",
        action="append",
        default=[],
        help="a cluster described in TOML; may be given several times",
    )
    where = parser.add_argument_group("where")
    where.add_argument(
        "--api-host", metavar="HOST", default="127.0.0.1", help="address for gRPC, 127.0.0.1"
    )
    where.add_argument(
        "--api-port", metavar="PORT", type=_port, help="port for gRPC, 8090; 0 for any free one"
    )
    where.add_argument(
        "--listen-anywhere",
        action="store_true",
        help="allow an --api-host that other machines reach; callers there are anonymous",
    )
    where.add_argument(
        "--socket", metavar="PATH", help="Unix socket for local commands (PODWRIGHT_SOCKET)"
    )
    where.add_argument(
        "--storage",
        metavar="PLACE",
        help="what keeps partitions and leases: a file, or postgresql://user@host/database, "
        "which two servers may share",
    )
    where.add_argument(
        "--http-port",
        metavar="PORT",
        type=_port,
        help="HTTP: the page for browsers, /healthz, /metrics, /v1/partitions …; 0: any free one",
    )
    where.add_argument(
        "--http-host", metavar="HOST", default="127.0.0.1", help="its address, 127.0.0.1"
    )
    where.add_argument(
        "--http-name",
        metavar="NAMES",
        default="",
        help="names by which browsers may call the page, of a proxy's: pod.example.org",
    )
    where.add_argument(
        "--http-proxy",
        metavar="PEERS",
        default="",
        help="addresses of the site's proxy, which is believed who comes to the page: 10.0.0.5",
    )
    where.add_argument(
        "--http-proxy-user", metavar="HEADER", default="X-Remote-User", help="where it says that"
    )
    where.add_argument(
        "--http-proxy-secret",
        metavar="FILE",
        help="what it sends as x-podwright-proxy; needed for a proxy on this machine",
    )
    machines = parser.add_argument_group("machines with an agent")
    machines.add_argument(
        "--agent-key",
        metavar="FILE",
        help="a key that agents have, too; without it one of this account's, on this machine alone",
    )
    machines.add_argument(
        "--nmx", metavar="URL", help="NMX-M, which divides the NVLink fabric of racks: https://host"
    )
    machines.add_argument(
        "--nmx-login",
        metavar="FILE",
        help="its user and password, USER:PASSWORD; others must not read it",
    )
    machines.add_argument(
        "--nmx-ca", metavar="FILE", help="certificates to believe it by; those of this machine"
    )
    machines.add_argument(
        "--agent-silence",
        metavar="S",
        type=seconds,
        default=10.0,
        help="seconds after which a silent machine is given up, 10",
    )
    machines.add_argument(
        "-a",
        "--autodiscovery-listen-interfaces",
        metavar="NAMES",
        default="",
        help="where agents may announce themselves: eth0,eth1",
    )
    trust = parser.add_argument_group("who may call")
    trust.add_argument("--init", action="store_true", help="make a new store, and end")
    trust.add_argument(
        "--secure",
        action="store_true",
        help="callers on TCP show an access key; with --init: from the first start on, "
        "with an administrator whose key is printed",
    )
    trust.add_argument(
        "--default-user-id", metavar="NAME", default="", help="that administrator; your own name"
    )
    trust.add_argument(
        "--tls-init", action="store_true", help="make certificates in vipu-certs, and end"
    )
    trust.add_argument(
        "--tls-renew",
        action="store_true",
        help="make the certificates in vipu-certs anew, of the same authority, and end",
    )
    trust.add_argument(
        "--name",
        metavar="NAME",
        action="append",
        default=[],
        help="with --tls-init, --tls-renew: a name or address by which clients come, a virtual "
        "one too; may be given several times",
    )
    trust.add_argument(
        "--tls-administrators",
        metavar="NAMES",
        default="",
        help="administrators of these names may show a certificate that has no more than their "
        "common name: alice,bob",
    )
    trust.add_argument(
        "--tls-certs", metavar="DIR", help="folder with ca.pem, cert.pem and key.pem: speak TLS"
    )
    trust.add_argument(
        "--munge", action="store_true", help="believe MUNGE credentials of callers on TCP"
    )
    trust.add_argument("--munge-socket", metavar="PATH", help="where munged listens")
    trust.add_argument(
        "--private-data",
        metavar="KINDS",
        default="",
        help="what of others' users do not see: all, or some of partitions, leases, waiters, "
        "devices, allocations, agents",
    )
    trust.add_argument(
        "--anonymous-endpoints",
        action="store_true",
        help="tell callers who show nothing where the devices of every partition answer",
    )
    life = parser.add_argument_group("life")
    life.add_argument(
        "--user", action="store_true", help="this user's own server, silent, in the background"
    )
    life.add_argument(
        "--system",
        action="store_true",
        help="serve everybody on this machine, as root's server does, from any account",
    )
    life.add_argument(
        "--idle-seconds",
        metavar="N",
        type=seconds,
        help="end after so long without partition, lease or call (with --user: 300)",
    )
    copies = parser.add_argument_group("backups").add_mutually_exclusive_group()
    copies.add_argument(
        "--backup", metavar="FILE", help="write what the store holds to FILE, and end"
    )
    copies.add_argument("--restore", metavar="FILE", help="put a backup into the store, and end")
    parser.add_argument(
        "--replace", action="store_true", help="with --restore: whatever the store holds now"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --restore: check the file, and change nothing"
    )
    life.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="of what it logs: text, json"
    )
    life.add_argument(
        "--audit-log",
        metavar="WHERE",
        default="",
        help="what callers do, as it happens: stderr, syslog, syslog:HOST:PORT",
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more; -vv: calls")
    parser.add_argument(
        "--version", action="version", version=f"vipu-server (Podwright) {__version__}"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run(lambda: _main(argv), prog="vipu-server")


def _main(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.config_file:
        from podwright.cli._settings import words

        typed = sys.argv[1:] if argv is None else argv
        arguments = parser.parse_args([*words(parser, arguments.config_file), *typed])
    if arguments.dry_run and not arguments.restore:
        parser.error("--dry-run is for --restore")
    if arguments.backup or arguments.restore:
        return _copy(arguments)
    if arguments.user and os.getsid(0) != os.getpid():
        if os.fork():
            return 0
        os.setsid()
        _let_go()
    import asyncio
    import logging

    import uvloop

    from podwright.cli._logs import EVENTS, log_to
    from podwright.errors import PodwrightError
    from podwright.server import serve

    log_to(arguments.verbose, arguments.log_format, arguments.audit_log)
    options = _options(arguments)
    if arguments.name and not (arguments.tls_init or arguments.tls_renew):
        parser.error("--name is for --tls-init and --tls-renew")
    if arguments.init or arguments.tls_init or arguments.tls_renew:
        return _prepare(arguments, options)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options, lambda s, h: None if arguments.user else _say(options, s, h)))
    except PodwrightError as error:
        if arguments.log_format != "json":
            raise
        fields = {"code": error.code, "problem": error.problem, "would_work": error.would_work}
        logging.getLogger(EVENTS).error("%s", error.message, extra={"fields": fields})
        return error.exit_code
    return 0


def _copy(arguments: argparse.Namespace) -> int:
    """Back up or restore the store that these options name."""
    import asyncio
    from pathlib import Path

    from podwright.server import back_up, compare, restore_from
    from podwright.store import shown_place

    storage = _options(arguments).storage
    place = shown_place(storage)
    if arguments.backup:
        count = asyncio.run(back_up(storage, Path(arguments.backup)))
        complain(f"{count} records of {place} are in {arguments.backup}")
    elif arguments.dry_run:
        coming, going = asyncio.run(compare(storage, Path(arguments.restore)))
        goes = f"; the {going} that it holds would go" if going else ", which is empty"
        complain(f"{coming} records of {arguments.restore} would be put into {place}{goes}")
    else:
        work = restore_from(storage, Path(arguments.restore), replace=arguments.replace)
        complain(f"{asyncio.run(work)} records of {arguments.restore} are in {place}")
    return 0


def _options(arguments: argparse.Namespace) -> ServingOptions:
    from pathlib import Path

    from podwright.cli._places import own_key, state_folder
    from podwright.controller import Visible, private_kinds
    from podwright.errors import InvalidRequest
    from podwright.server import ServingOptions
    from podwright.store import shows_password, storage_file
    from podwright.wire import DEFAULT_PORT, SOCKET_VARIABLE, SYSTEM_SOCKET, user_socket

    for_all = (os.geteuid() == 0 or arguments.system) and not arguments.user
    named = arguments.socket or os.environ.get(SOCKET_VARIABLE, "")
    if "," in named and not arguments.socket:
        raise InvalidRequest(
            f"{SOCKET_VARIABLE} names the sockets of several servers",
            would_work="say which one is this server's with --socket",
        )
    socket = Path(named or (SYSTEM_SOCKET if for_all else user_socket())).absolute()
    if arguments.storage:
        if shows_password(arguments.storage):
            raise InvalidRequest(
                "--storage carries a password, which every user of this machine could read",
                would_work="leave it out, and keep it in ~/.pgpass or name its file in PGPASSFILE",
            )
        storage: Path | str = storage_file(arguments.storage) or arguments.storage
    elif arguments.user:
        storage = socket.with_name("server.db")
    else:
        storage = state_folder(system=for_all) / "vipu-server.db"
    port_asked = arguments.api_port
    if port_asked is None:
        port_asked = 0 if arguments.user else DEFAULT_PORT
    return ServingOptions(
        storage=storage.absolute() if isinstance(storage, Path) else storage,
        socket=socket,
        preset=arguments.preset,
        files=tuple(Path(name) for name in arguments.cluster_file),
        host=arguments.api_host,
        port=port_asked,
        anywhere=arguments.listen_anywhere,
        user=arguments.user,
        idle=arguments.idle_seconds or (USER_IDLE if arguments.user else None),
        socket_mode=0o666 if for_all else 0o600,
        private=not named and not for_all,
        agent_key=Path(arguments.agent_key) if arguments.agent_key else None,
        own_key=own_key(system=for_all),
        silence=arguments.agent_silence,
        nmx=arguments.nmx,
        nmx_login=Path(arguments.nmx_login) if arguments.nmx_login else None,
        nmx_authority=Path(arguments.nmx_ca) if arguments.nmx_ca else None,
        web=_web(arguments),
        web_names=tuple(filter(None, arguments.http_name.split(","))),
        proxy=_proxy(arguments),
        munge=(arguments.munge_socket or "") if arguments.munge else None,
        secure=arguments.secure,
        administrators=frozenset(filter(None, arguments.tls_administrators.split(","))),
        visible=Visible(
            private_kinds(arguments.private_data),
            # A user's own server on loopback: whoever asks is this user's.
            arguments.anonymous_endpoints or arguments.user,
        ),
        certs=Path(arguments.tls_certs) if arguments.tls_certs else None,
        interfaces=tuple(filter(None, arguments.autodiscovery_listen_interfaces.split(","))),
    )


def _web(arguments: argparse.Namespace) -> tuple[str, int] | None:
    """Where HTTP answers. A user's own server has its page somewhere on loopback."""
    if arguments.http_port is not None:
        return arguments.http_host, arguments.http_port
    return ("127.0.0.1", 0) if arguments.user else None


def _proxy(arguments: argparse.Namespace) -> SiteProxy | None:
    """The site's proxy, if there is one. Raises InvalidRequest."""
    from pathlib import Path

    peers = [peer for peer in arguments.http_proxy.split(",") if peer]
    if not peers:
        return None
    from podwright.agents import read_key
    from podwright.page import SiteProxy

    file = arguments.http_proxy_secret
    secret = read_key(Path(file)).decode("latin-1") if file else ""
    return SiteProxy(peers, header=arguments.http_proxy_user, secret=secret)


def _prepare(arguments: argparse.Namespace, options: ServingOptions) -> int:
    import asyncio
    import getpass
    import socket
    from pathlib import Path

    from podwright.hosts import is_loopback
    from podwright.server import make_certificates, make_store, renew_certificates
    from podwright.store import shown_place

    if arguments.tls_init:
        hosts = [socket.gethostname(), *arguments.name]
        if not is_loopback(options.host) and options.host not in ("0.0.0.0", "::", "[::]"):
            hosts.append(options.host)
        make_certificates(Path("vipu-certs"), hosts)
        print("certificates: vipu-certs/server and vipu-certs/client")
        print(f"The server's is for {', '.join(dict.fromkeys(['localhost', *hosts]))}.")
    if arguments.tls_renew:
        hosts = renew_certificates(Path("vipu-certs"), arguments.name)
        print("certificates: vipu-certs/server and vipu-certs/client are new")
        print(f"The server's is for {', '.join(['localhost', *hosts])}. It uses them at once.")
    if arguments.init:
        user = (arguments.default_user_id or getpass.getuser()) if arguments.secure else ""
        key = asyncio.run(make_store(options.storage, user))
        print(f"store: {shown_place(options.storage)}")
        if key:
            print(f"create user ({user}): success. Access key is '{key}'.")
    return 0


def _say(options: ServingOptions, server: Server, hardware: ServedHardware) -> None:
    """One or two lines: what is served, and where."""
    from podwright.store import shown_place

    if hardware.nothing_found:
        pods = ", ".join(cluster.name.upper() for cluster in hardware.clusters)
        _announce(f"No accelerators found: serving a simulated {pods}")
    what = ", ".join(
        f"{cluster.name} ({cluster.size} {cluster.family.device_noun}s"
        f"{', SIMULATED' if cluster.simulated else ''})"
        for cluster in server.controller.clusters
    )
    what = what or "no cluster yet (vipu-admin create cluster)"
    host = f"[{server.host}]" if ":" in (server.host or "") else server.host
    if server.web_port:
        _announce(f"page and metrics on {server.page}")
    _announce(
        f"vipu-server {__version__}: {what} on {host}:{server.port} and {options.socket}, "
        f"kept in {shown_place(options.storage)}"
    )


def _let_go() -> None:
    """No terminal, no pipe of the caller's: whoever waits for their end must not wait for us."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _announce(line: str) -> None:
    """A line for whoever started it, in the form of the log."""
    import logging

    from podwright.cli._logs import EVENTS, JsonLines

    if any(isinstance(one.formatter, JsonLines) for one in logging.getLogger().handlers):
        logging.getLogger(EVENTS).info("%s", line)
    else:
        complain(line)


def _port(text: str) -> int:
    return 0 if text.strip() == "0" else port(text)


if __name__ == "__main__":
    sys.exit(main())
