"""`vipu-admin`: agents, clusters, allocations and users of a server. It parses, calls and prints.

Grammar, the success line and the known options are those of V-IPU's command of the same name. Our
choice are quotas, shares, machines, backups, and all tables except that of `discover agent`. Output
about partitions is that of `vipu`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

from podwright import option_rows as opt
from podwright.cli.shared._arguments import Parser, run
from podwright.cli.shared._nouns import ListOptions, Noun, NounVerb, PlainVerb, noun_parser
from podwright.cli.shared._server import connect_to_one, said
from podwright.cli.vipu import Connect
from podwright.option_rows import not_negative, number, port, positive

_EXAMPLES = """\
examples:
  vipu-admin create agent ag1 --host 10.1.2.1 --port 8080
  vipu-admin create cluster c1 --agents ag1,ag2,ag3,ag4 --num-ipulinkdomains 2 \\
             --topology mesh --cluster-topology looped
  vipu-admin create allocation a1 --cluster c1 --size 8
  vipu-admin create user alice --allocations a1
  vipu-admin create certificate alice
  vipu-admin list agents
  vipu-admin test cluster c1
  vipu-admin drain machine ag2
  vipu-admin set quota --user alice --devices 16
  vipu-admin set share --guest slurm --weight 3
  vipu-admin backup store pod.backup
  vipu-admin moves --dry-run

Words about partitions, devices and leases do what they do in vipu: vipu-admin list partitions.
exit codes: 0 done; 1 refused, or a test found something; 2 wrong usage; 69 no server."""

_VERBS = ("create", "list", "get", "reset", "remove", "delete", "explain", "wait")
#: The verbs that are entirely vipu's.
_ALL_OF_VIPU = ("events", "reset", "explain")
_SHARES = {
    "set": "Set the weight of a scheduler, or of people, in the common queue.",
    "remove": "Forget the weight that was set; that of vipu-server --share counts again, or 1.",
}
_OF_VIPU = ("partition", "device", "lease", "ipu-attr", "waiter", "event")
_CHANGE_NOTHING = opt.flag("say what would be, no more")


class _AllocationsOptions(ListOptions):
    cluster = opt.text("only those of this one", "C")


class _QuotasOptions(ListOptions):
    allocation = opt.text("only those of this one", "A")


class _AgentOptions(opt.OptionTable):
    host = opt.text("its address; as it announced it", "H")
    port = opt.value("its port, 8080", "P", port, 8080)
    replace = opt.flag("it has another address, hardware or certificate from now on")
    certificate = opt.text(
        "with TLS: believe the certificate of this number alone, which create printed", "N"
    )


class _ClusterOptions(opt.OptionTable):
    agents = opt.optional("in the order of their links", "A,B,…")
    num_ipulinkdomains = opt.value("link domains, 1", "N", positive, 1)
    topology = opt.text("inside a link domain: mesh, torus", "T")
    cluster_topology = opt.text("between them: looped, switched, none", "T")


class _AllocationOptions(opt.OptionTable):
    cluster = opt.text("the cluster", "C")
    agents = opt.text("these machines", "A,B,…")
    size = opt.value("so many devices", "N", not_negative, 0)
    users = opt.text("who may use it", "A,B,…")
    scheduler = opt.text("the user of that role who alone creates in it", "USER")


class _UserOptions(opt.OptionTable):
    allocations = opt.text("those the user may use; all", "A,B,…")
    role = opt.text("administrator, user, reader, scheduler", "R", "user")
    uid = opt.text(
        "the account that is this user without a key: a number, or its name on this machine", "ID"
    )


class _CertificateOptions(opt.OptionTable):
    tls_ca = opt.text(
        "the authority: what vipu-server --tls-init made; vipu-certs", "DIR", "vipu-certs"
    )
    renew = opt.flag("in the place of the one that is there")
    agent = opt.flag("NAME is a machine, and this its agent's")
    host = opt.text("names and addresses of the agent's host", "A,B,…")
    days = opt.value("how long it is good for, 365", "N", positive, 365)


class _RemoveClusterOptions(opt.OptionTable):
    force = opt.flag("with the allocations in it")


class _RevokeOptions(opt.OptionTable):
    number = opt.optional("as it was made with", "N", required=True)


class _DrainOptions(opt.OptionTable):
    dry_run = opt.flag("say what that would mean, no more")


class _AddMachineOptions(opt.OptionTable):
    cluster = opt.optional("the cluster", "C", required=True)
    link_domain = opt.text("the one they join, or a new one's name", "D")
    dry_run = _CHANGE_NOTHING


class _ReplaceMachineOptions(opt.OptionTable):
    by = opt.optional("a registered agent", "AGENT", required=True)
    dry_run = _CHANGE_NOTHING


class _QuotaOptions(opt.OptionTable):
    user = opt.text("of this user, in all allocations together", "U")
    allocation = opt.text("of all in this one; with --user: of that", "A")


class _SetQuotaOptions(_QuotaOptions):
    devices = opt.value("devices; without it, no limit", "N", not_negative, None)
    partitions = opt.value("partitions; else no limit", "N", not_negative, None)


class _ShareOptions(opt.OptionTable):
    guest = opt.optional(
        "slurm, 'kubernetes NAME' or people; list shares shows all", "G", required=True
    )


class _SetShareOptions(_ShareOptions):
    weight = opt.value("from 0.01 to 1000", "N", number, None, required=True)


class _MovesOptions(opt.OptionTable):
    never = opt.flag("ask nobody from now on; it is kept", rivals="permission")
    allow = opt.flag("ask those who can move, as at first", rivals="permission")
    dry_run = opt.flag("change nothing, only show")


class _BackupOptions(opt.OptionTable):
    name = opt.argument("the file; one that is there is replaced", "FILE")


class _AuditOptions(opt.OptionTable):
    head = opt.several(
        "an entry that must still be there, as the server's log has it each hour; may be given "
        "several times",
        "HEAD",
        str,
    )


def _list(name: str, options: type[opt.OptionTable] = ListOptions) -> Noun:
    return Noun(name, f"list_{name}s", f"List {name}s.", options, named=False)


def _get(name: str) -> Noun:
    return Noun(name, f"get_{name}", f"Show one {name}.")


def _remove(name: str, options: type[opt.OptionTable] = opt.OptionTable) -> Noun:
    return Noun(name, f"remove_{name}", f"Remove one {name}, if nothing uses it.", options)


def _of_machine(verb: str, summary: str, options: type[opt.OptionTable], action: str) -> NounVerb:
    return NounVerb(verb, summary, (Noun("machine", f"{verb}_machine", action, options),))


_TABLE = (
    NounVerb(
        "create",
        "Make an agent, cluster, allocation, user or certificate.",
        (
            Noun("agent", "create_agent", "Register the agent of a machine.", _AgentOptions),
            Noun(
                "cluster",
                "create_cluster",
                "Make a cluster of registered agents.",
                _ClusterOptions,
            ),
            Noun(
                "allocation",
                "create_allocation",
                "Set machines of a cluster apart.",
                _AllocationOptions,
            ),
            Noun("user", "create_user", "Make a user with an access key.", _UserOptions),
            Noun(
                "certificate",
                "create_certificate",
                "Make a certificate for a user, or for an agent.",
                _CertificateOptions,
            ),
        ),
    ),
    NounVerb(
        "list",
        "List agents, clusters, allocations or users.",
        (
            _list("agent"),
            _list("cluster"),
            _list("allocation", _AllocationsOptions),
            _list("user"),
            _list("machine")._replace(summary="List machines, and what is on them."),
            _list("quota", _QuotasOptions)._replace(
                summary="List quotas, and what is used of them."
            ),
            _list("share")._replace(summary="List the weights in the common queue."),
        ),
    ),
    NounVerb(
        "get",
        "Show one agent, cluster, allocation or user.",
        (_get("agent"), _get("cluster"), _get("allocation"), _get("user")),
    ),
    NounVerb(
        "remove",
        "Remove an agent, cluster, allocation or user.",
        (
            _remove("agent"),
            _remove("cluster", _RemoveClusterOptions),
            _remove("allocation"),
            _remove("user"),
            Noun("quota", "remove_quota", "Remove a quota.", _QuotaOptions, named=False),
            Noun("share", "remove_share", _SHARES["remove"], _ShareOptions, named=False),
        ),
        ("delete",),
    ),
    NounVerb(
        "revoke",
        "Revoke one certificate of a user's.",
        (
            Noun(
                "certificate",
                "revoke_certificate",
                "Revoke one certificate; NAME is the user's.",
                _RevokeOptions,
            ),
        ),
    ),
    NounVerb(
        "discover",
        "Show agents that announced themselves.",
        (
            Noun(
                "agent",
                "discover_agents",
                "Show agents that announced themselves.",
                ListOptions,
                named=False,
            ),
        ),
    ),
    NounVerb(
        "test",
        "Test a cluster.",
        (Noun("cluster", "test_cluster", "Test connectivity, hardware, cabling and topology."),),
    ),
    _of_machine(
        "drain",
        "Take a machine out of service.",
        _DrainOptions,
        "Place nothing new on a machine; what is there stays.",
    ),
    _of_machine(
        "add",
        "Add machines to a cluster that is in use.",
        _AddMachineOptions,
        "Add registered agents to a cluster; what runs there goes on.",
    ),
    _of_machine(
        "replace",
        "Put another machine in one's place.",
        _ReplaceMachineOptions,
        "Put another agent in the place of a machine that is empty.",
    ),
    _of_machine(
        "resume",
        "Put a machine back into service.",
        opt.OptionTable,
        "Place partitions on a machine again.",
    ),
    NounVerb(
        "set",
        "Limit what users may have, or set a weight in the common queue.",
        (
            Noun("quota", "set_quota", "Set a quota.", _SetQuotaOptions, named=False),
            Noun("share", "set_share", _SHARES["set"], _SetShareOptions, named=False),
        ),
    ),
    PlainVerb(
        "moves",
        "show_moves",
        "Show which launches are asked to move to other devices, and which would be.",
        _MovesOptions,
        help="Show which launches are asked to move, or have none asked.",
    ),
    NounVerb(
        "backup",
        "Back up what the server keeps.",
        (
            Noun(
                "store",
                "backup_store",
                "Write all that the server keeps into a file.",
                _BackupOptions,
                named=False,
            ),
        ),
    ),
    NounVerb(
        "audit",
        "See whether the audit is as it was written.",
        (
            Noun(
                "verify",
                "verify_audit",
                "Check the hash chains of the audit.",
                _AuditOptions,
                named=False,
            ),
        ),
    ),
)


def build_parser() -> Parser:
    """Return the parser of the whole command."""
    description = "Administer agents, clusters, allocations and users."
    return noun_parser("vipu-admin", description, _EXAMPLES, _TABLE)


def main(argv: Sequence[str] | None = None, connect: Connect = connect_to_one) -> int:
    """Run the command, and return the exit code. connect: returns the server."""
    return run(
        lambda: _main(argv, connect),
        prog="vipu-admin",
        describe=lambda error: said(error, "vipu-admin"),
    )


def _main(argv: Sequence[str] | None, connect: Connect) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if _is_of_vipu(words):
        from podwright.cli.vipu import main as vipu

        return vipu(words, connect)
    parser = build_parser()
    arguments = parser.parse_args(words)
    if not arguments.server_version and arguments.verb is None:
        parser.error(
            "missing VERB: create, list, get, set, add, remove, drain, backup, …; see --help"
        )
    from podwright.cli.admin._verbs import perform  # after the words are known to be right

    return perform(arguments, connect)


def _is_of_vipu(words: Sequence[str]) -> bool:
    """Return whether the verb is one of vipu's, or has one of vipu's nouns."""
    if next((word for word in words if word in ("events", *_VERBS)), "") in _ALL_OF_VIPU:
        return True
    return any(
        verb in _VERBS and noun.removesuffix("s") in _OF_VIPU for verb, noun in pairwise(words)
    )


if __name__ == "__main__":
    raise SystemExit(main())
