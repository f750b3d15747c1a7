"""The options of `vipu-server` with their help. Parser, manual page and settings follow from
them.
"""

from __future__ import annotations

from pathlib import Path

from podwright.ground import option_rows as opt
from podwright.ground.option_rows import any_port, seconds

WHAT = opt.OptionGroup("what to serve")
ADDRESS_OPTIONS = opt.OptionGroup("where")
MACHINES = opt.OptionGroup("machines with an agent")
TRUST_OPTIONS = opt.OptionGroup("who may call")
LIFETIME_OPTIONS = opt.OptionGroup("life")
BACKUP_OPTIONS = opt.OptionGroup("backups")


class ServerArguments(opt.OptionTable):
    """The options of `vipu-server`."""

    config_file = opt.optional("these options from a TOML file; those here go first", "FILE")
    preset = opt.optional(
        "simulated: pod4 to pod256, hgx8, hgx8x4, nvl72", "NAME", group=WHAT, rivals="source"
    )
    cluster_file = opt.several(
        "a cluster described in TOML; may be given several times",
        "FILE",
        Path,
        group=WHAT,
        rivals="source",
    )
    api_host = opt.text("address for gRPC, 127.0.0.1", "HOST", "127.0.0.1", group=ADDRESS_OPTIONS)
    api_port = opt.value(
        "port for gRPC, 8090; 0 for any free one", "PORT", any_port, None, group=ADDRESS_OPTIONS
    )
    listen_anywhere = opt.flag(
        "allow an --api-host that other machines reach; callers there are anonymous",
        group=ADDRESS_OPTIONS,
    )
    socket = opt.optional(
        "Unix socket for local commands (PODWRIGHT_SOCKET)", "PATH", group=ADDRESS_OPTIONS
    )
    storage = opt.optional(
        "what keeps partitions and leases: a file, or postgresql://user@host/database, which "
        "two servers may share",
        "PLACE",
        group=ADDRESS_OPTIONS,
    )
    http_port = opt.value(
        "HTTP: the page for browsers, /healthz, /metrics, /v1/partitions …; 0: any free one",
        "PORT",
        any_port,
        None,
        group=ADDRESS_OPTIONS,
    )
    http_host = opt.text("address for HTTP, 127.0.0.1", "HOST", "127.0.0.1", group=ADDRESS_OPTIONS)
    pod_name = opt.text(
        "value of the label pod in /metrics, the same for servers that share a store; by "
        "default this host's name, or HOST/DATABASE of a shared store",
        "NAME",
        group=ADDRESS_OPTIONS,
    )
    http_name = opt.names(
        "names that browsers may use for the page, such as a proxy's: pod.example.org",
        "NAMES",
        group=ADDRESS_OPTIONS,
    )
    http_proxy = opt.names(
        "addresses of the site's proxy, which names the user of each request: 10.0.0.5",
        "PEERS",
        group=ADDRESS_OPTIONS,
    )
    http_proxy_user = opt.text(
        "header that names the user", "HEADER", "X-Remote-User", group=ADDRESS_OPTIONS
    )
    http_proxy_secret = opt.path(
        "secret that the proxy sends as x-podwright-proxy; required on this machine",
        "FILE",
        group=ADDRESS_OPTIONS,
    )
    agent_key = opt.path(
        "key that the server shares with its agents; by default a key of this account",
        "FILE",
        group=MACHINES,
    )
    nmx = opt.optional(
        "NMX-M, which divides the NVLink fabric of racks: https://host", "URL", group=MACHINES
    )
    nmx_login = opt.path(
        "file with NMX-M's user and password, USER:PASSWORD, private to you", "FILE", group=MACHINES
    )
    nmx_ca = opt.path(
        "certificates to trust for it; by default those of this machine", "FILE", group=MACHINES
    )
    redfish = opt.optional(
        "a Redfish fabric or composition service, whose devices are composed: "
        "https://host/redfish/v1/Fabrics/NAME or …/redfish/v1/CompositionService",
        "URL",
        group=MACHINES,
    )
    redfish_login = opt.path(
        "file with the service's user and password, USER:PASSWORD, private to you",
        "FILE",
        group=MACHINES,
    )
    redfish_ca = opt.path(
        "certificates to trust for it; by default those of this machine", "FILE", group=MACHINES
    )
    fabric = opt.text("fabric whose driver another package adds", "NAME", group=MACHINES)
    fabric_url = opt.optional("the address that this driver gets", "URL", group=MACHINES)
    fabric_login = opt.path("a file USER:PASSWORD that it gets", "FILE", group=MACHINES)
    fabric_ca = opt.path("the certificates that it gets", "FILE", group=MACHINES)
    fabric_inventory = opt.path(
        "serial numbers and UIDs that assign the fabric's devices to machines, in TOML; by "
        "default the machines' agents report them",
        "FILE",
        group=MACHINES,
    )
    agent_silence = opt.value(
        "seconds of silence after which a machine counts as down, 10",
        "S",
        seconds,
        10.0,
        group=MACHINES,
    )
    autodiscovery_listen_interfaces = opt.names(
        "network interfaces on which agents may announce themselves: eth0,eth1",
        "NAMES",
        group=MACHINES,
        name="-a --autodiscovery-listen-interfaces",
    )
    init = opt.flag("make a new store, and end", group=TRUST_OPTIONS)
    secure = opt.flag(
        "require an access key of callers on TCP; with --init, also create an administrator "
        "and print the key",
        group=TRUST_OPTIONS,
    )
    default_user_id = opt.text(
        "name of that administrator; by default your own", "NAME", group=TRUST_OPTIONS
    )
    tls_init = opt.flag("make certificates in vipu-certs, and end", group=TRUST_OPTIONS)
    tls_renew = opt.flag(
        "renew the certificates in vipu-certs, with the same authority, and end",
        group=TRUST_OPTIONS,
    )
    name = opt.several(
        "with --tls-init, --tls-renew: a name or address that clients use, also a virtual one;"
        " may be given several times",
        "NAME",
        str,
        group=TRUST_OPTIONS,
    )
    tls_administrators = opt.names(
        "administrators of these names may show a certificate that has no more than their "
        "common name: alice,bob",
        "NAMES",
        group=TRUST_OPTIONS,
    )
    tls_certs = opt.path(
        "use TLS, with ca.pem, cert.pem and key.pem of this folder", "DIR", group=TRUST_OPTIONS
    )
    munge = opt.flag("accept MUNGE credentials of callers on TCP", group=TRUST_OPTIONS)
    munge_socket = opt.optional("socket of munged", "PATH", group=TRUST_OPTIONS)
    private_data = opt.optional(
        "what users cannot see of others: all, none, or some of partitions, leases, waiters,"
        " devices, allocations, agents (default: all with --secure, else none)",
        "KINDS",
        group=TRUST_OPTIONS,
    )
    anonymous_endpoints = opt.flag(
        "let callers without credentials see the addresses of all devices", group=TRUST_OPTIONS
    )
    share = opt.several(
        "the weight in the common queue of slurm, of 'kubernetes NAME' or of people (0.01 to 1000, "
        "default: 1 each), as in slurm=3; may be given several times; vipu-admin set share comes "
        "before it",
        "NAME=N",
        str,
        group=LIFETIME_OPTIONS,
    )
    user = opt.flag(
        "run this user's own server, silently, in the background", group=LIFETIME_OPTIONS
    )
    system = opt.flag(
        "run this machine's server, for all accounts; else root's server is root's own",
        group=LIFETIME_OPTIONS,
    )
    idle_seconds = opt.value(
        "end after so long without partition, lease or call (with --user: 300)",
        "N",
        seconds,
        None,
        group=LIFETIME_OPTIONS,
    )
    backup = opt.optional(
        "write a backup of the store to FILE, and end",
        "FILE",
        group=BACKUP_OPTIONS,
        rivals="backup",
    )
    restore = opt.optional(
        "put a backup into the store, and end", "FILE", group=BACKUP_OPTIONS, rivals="backup"
    )
    check = opt.flag(
        "check whether the store is in order, and end", group=BACKUP_OPTIONS, rivals="backup"
    )
    repair = opt.flag(
        "remove the records of the store that a start sets aside, and end",
        group=BACKUP_OPTIONS,
        rivals="backup",
    )
    replace = opt.flag("with --restore: replace what is in the store now")
    dry_run = opt.flag("with --restore: check the file, and change nothing")
    log_format = opt.choice(
        "format of the log: text, json", ("text", "json"), "text", group=LIFETIME_OPTIONS
    )
    audit_log = opt.text(
        "write what callers do to stderr, syslog or syslog:HOST:PORT, as it happens",
        "WHERE",
        group=LIFETIME_OPTIONS,
    )
    verbose = opt.count("log more; -vv also logs calls", name="-v --verbose")
