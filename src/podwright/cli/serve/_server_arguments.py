"""The options of `vipu-server` with their help. Parser, manual page and settings follow from
them.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from podwright.cli.shared._arguments import any_port, seconds
from podwright.cli.shared._option_fields import Opt

WHAT: Final = "what to serve"
WHERE: Final = "where"
MACHINES: Final = "machines with an agent"
TRUST: Final = "who may call"
LIFE: Final = "life"
BACKUPS: Final = "backups"


class ServerArguments(NamedTuple):
    """The arguments of `vipu-server`."""

    config_file: Annotated[
        str | None, Opt("these options from a TOML file; those here go first", metavar="FILE")
    ] = None
    preset: Annotated[
        str | None,
        Opt("simulated: pod4 to pod256, hgx8, hgx8x4, nvl72", WHAT, "NAME", rivals="source"),
    ] = None
    cluster_file: Annotated[
        tuple[str, ...],
        Opt(
            "a cluster described in TOML; may be given several times",
            WHAT,
            "FILE",
            rivals="source",
            repeated=True,
        ),
    ] = ()
    api_host: Annotated[str, Opt("address for gRPC, 127.0.0.1", WHERE, "HOST")] = "127.0.0.1"
    api_port: Annotated[
        int | None, Opt("port for gRPC, 8090; 0 for any free one", WHERE, "PORT", read=any_port)
    ] = None
    listen_anywhere: Annotated[
        bool,
        Opt("allow an --api-host that other machines reach; callers there are anonymous", WHERE),
    ] = False
    socket: Annotated[
        str | None, Opt("Unix socket for local commands (PODWRIGHT_SOCKET)", WHERE, "PATH")
    ] = None
    storage: Annotated[
        str | None,
        Opt(
            "what keeps partitions and leases: a file, or postgresql://user@host/database, which "
            "two servers may share",
            WHERE,
            "PLACE",
        ),
    ] = None
    http_port: Annotated[
        int | None,
        Opt(
            "HTTP: the page for browsers, /healthz, /metrics, /v1/partitions …; 0: any free one",
            WHERE,
            "PORT",
            read=any_port,
        ),
    ] = None
    http_host: Annotated[str, Opt("address for HTTP, 127.0.0.1", WHERE, "HOST")] = "127.0.0.1"
    pod_name: Annotated[
        str,
        Opt(
            "value of the label pod in /metrics, the same for servers that share a store; by "
            "default this host's name, or HOST/DATABASE of a shared store",
            WHERE,
            "NAME",
        ),
    ] = ""
    http_name: Annotated[
        str,
        Opt(
            "names that browsers may use for the page, such as a proxy's: pod.example.org",
            WHERE,
            "NAMES",
        ),
    ] = ""
    http_proxy: Annotated[
        str,
        Opt(
            "addresses of the site's proxy, which names the user of each request: 10.0.0.5",
            WHERE,
            "PEERS",
        ),
    ] = ""
    http_proxy_user: Annotated[str, Opt("header that names the user", WHERE, "HEADER")] = (
        "X-Remote-User"
    )
    http_proxy_secret: Annotated[
        str | None,
        Opt(
            "secret that the proxy sends as x-podwright-proxy; required on this machine",
            WHERE,
            "FILE",
        ),
    ] = None
    peer: Annotated[
        tuple[str, ...],
        Opt(
            "another pod, whose health and address the page shows; may be given several times: "
            "east=https://pod-east.example.org/",
            WHERE,
            "NAME=URL",
            repeated=True,
        ),
    ] = ()
    agent_key: Annotated[
        str | None,
        Opt(
            "key that the server shares with its agents; by default a key of this account",
            MACHINES,
            "FILE",
        ),
    ] = None
    nmx: Annotated[
        str | None,
        Opt("NMX-M, which divides the NVLink fabric of racks: https://host", MACHINES, "URL"),
    ] = None
    nmx_login: Annotated[
        str | None,
        Opt("file with NMX-M's user and password, USER:PASSWORD, private to you", MACHINES, "FILE"),
    ] = None
    nmx_ca: Annotated[
        str | None,
        Opt("certificates to trust for it; by default those of this machine", MACHINES, "FILE"),
    ] = None
    redfish: Annotated[
        str | None,
        Opt(
            "a Redfish fabric or composition service, whose devices are composed: "
            "https://host/redfish/v1/Fabrics/NAME or …/redfish/v1/CompositionService",
            MACHINES,
            "URL",
        ),
    ] = None
    redfish_login: Annotated[
        str | None,
        Opt(
            "file with the service's user and password, USER:PASSWORD, private to you",
            MACHINES,
            "FILE",
        ),
    ] = None
    redfish_ca: Annotated[
        str | None,
        Opt("certificates to trust for it; by default those of this machine", MACHINES, "FILE"),
    ] = None
    fabric: Annotated[str, Opt("fabric whose driver another package adds", MACHINES, "NAME")] = ""
    fabric_inventory: Annotated[
        str | None,
        Opt(
            "serial numbers and UIDs that assign the fabric's devices to machines, in TOML; by "
            "default the machines' agents report them",
            MACHINES,
            "FILE",
        ),
    ] = None
    agent_silence: Annotated[
        float,
        Opt(
            "seconds of silence after which a machine counts as down, 10",
            MACHINES,
            "S",
            read=seconds,
        ),
    ] = 10.0
    autodiscovery_listen_interfaces: Annotated[
        str,
        Opt(
            "network interfaces on which agents may announce themselves: eth0,eth1",
            MACHINES,
            "NAMES",
            short="-a",
        ),
    ] = ""
    init: Annotated[bool, Opt("make a new store, and end", TRUST)] = False
    secure: Annotated[
        bool,
        Opt(
            "require an access key of callers on TCP; with --init, also create an administrator "
            "and print the key",
            TRUST,
        ),
    ] = False
    default_user_id: Annotated[
        str, Opt("name of that administrator; by default your own", TRUST, "NAME")
    ] = ""
    tls_init: Annotated[bool, Opt("make certificates in vipu-certs, and end", TRUST)] = False
    tls_renew: Annotated[
        bool, Opt("renew the certificates in vipu-certs, with the same authority, and end", TRUST)
    ] = False
    name: Annotated[
        tuple[str, ...],
        Opt(
            "with --tls-init, --tls-renew: a name or address that clients use, also a virtual one;"
            " may be given several times",
            TRUST,
            "NAME",
            repeated=True,
        ),
    ] = ()
    tls_administrators: Annotated[
        str,
        Opt(
            "administrators of these names may show a certificate that has no more than their "
            "common name: alice,bob",
            TRUST,
            "NAMES",
        ),
    ] = ""
    tls_certs: Annotated[
        str | None, Opt("use TLS, with ca.pem, cert.pem and key.pem of this folder", TRUST, "DIR")
    ] = None
    munge: Annotated[bool, Opt("accept MUNGE credentials of callers on TCP", TRUST)] = False
    munge_socket: Annotated[str | None, Opt("socket of munged", TRUST, "PATH")] = None
    private_data: Annotated[
        str | None,
        Opt(
            "what users cannot see of others: all, none, or some of partitions, leases, waiters,"
            " devices, allocations, agents (default: all with --secure, else none)",
            TRUST,
            "KINDS",
        ),
    ] = None
    anonymous_endpoints: Annotated[
        bool,
        Opt("let callers without credentials see the addresses of all devices", TRUST),
    ] = False
    sharing: Annotated[
        str,
        Opt(
            "keep devices for the first jobs of schedulers, in turn with people: on; off: each "
            "scheduler makes room among its own jobs only",
            LIFE,
            choices=("on", "off"),
        ),
    ] = "on"
    share: Annotated[
        tuple[str, ...],
        Opt(
            "with --sharing on: the weight of slurm, of 'kubernetes NAME' or of people (0.01 to "
            "1000, default: 1 each), as in slurm=3; may be given several times; vipu-admin set "
            "share comes before it",
            LIFE,
            "NAME=N",
            repeated=True,
        ),
    ] = ()
    user: Annotated[bool, Opt("run this user's own server, silently, in the background", LIFE)] = (
        False
    )
    system: Annotated[
        bool,
        Opt(
            "run this machine's server, for all accounts; else root's server is root's own",
            LIFE,
        ),
    ] = False
    idle_seconds: Annotated[
        float | None,
        Opt(
            "end after so long without partition, lease or call (with --user: 300)",
            LIFE,
            "N",
            read=seconds,
        ),
    ] = None
    backup: Annotated[
        str | None,
        Opt("write a backup of the store to FILE, and end", BACKUPS, "FILE", rivals="backup"),
    ] = None
    restore: Annotated[
        str | None, Opt("put a backup into the store, and end", BACKUPS, "FILE", rivals="backup")
    ] = None
    check: Annotated[
        bool, Opt("check whether the store is in order, and end", BACKUPS, rivals="backup")
    ] = False
    replace: Annotated[bool, Opt("with --restore: replace what is in the store now")] = False
    dry_run: Annotated[bool, Opt("with --restore: check the file, and change nothing")] = False
    log_format: Annotated[
        str, Opt("format of the log: text, json", LIFE, choices=("text", "json"))
    ] = "text"
    audit_log: Annotated[
        str,
        Opt(
            "write what callers do to stderr, syslog or syslog:HOST:PORT, as it happens",
            LIFE,
            "WHERE",
        ),
    ] = ""
    verbose: Annotated[int, Opt("log more; -vv also logs calls", short="-v", counted=True)] = 0
