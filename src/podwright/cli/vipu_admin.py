"""`vipu-admin`: agents, clusters, allocations and users of a server. It parses, calls and prints.

Grammar, the success line and the known options are those of V-IPU's command of the same name. Our
choice are quotas, shares, machines, backups, and all tables except that of `discover agent`. Output
about partitions is that of `vipu`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser, not_negative, number, port, positive, run
from podwright.cli.shared._listing import add_options
from podwright.cli.shared._server import connect_to_one, said, server_options
from podwright.cli.vipu import Connect

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


def build_parser() -> Parser:
    """Return the parser of the whole command."""
    common = server_options()
    common.add_argument("--json", "--showjson", action="store_true", help="print JSON")
    parser = Parser(
        prog="vipu-admin",
        parents=[common],
        description="Administer agents, clusters, allocations and users.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--version", action="version", version=f"vipu-admin (Podwright) {__version__}"
    )
    parser.add_argument(
        "--server-version", action="store_true", help="print the server's version and address"
    )
    verbs = parser.add_subparsers(metavar="VERB", dest="verb")

    def verb(name: str, summary: str, *aliases: str) -> Callable[..., Parser]:
        word = verbs.add_parser(name, help=summary, description=summary, aliases=aliases)
        nouns = word.add_subparsers(metavar="NOUN", dest="noun", required=True)

        def noun(name: str, action: str, summary: str, *, named: bool = True) -> Parser:
            child: Parser = nouns.add_parser(
                name, aliases=[f"{name}s"], parents=[common], help=summary, description=summary
            )
            child.set_defaults(action=action)
            if named:
                child.add_argument("name", metavar="NAME", help=f"the {name}'s name")
            return child

        return noun

    _creation(verb("create", "Make an agent, cluster, allocation, user or certificate."))
    listing = verb("list", "List agents, clusters, allocations or users.")
    getting = verb("get", "Show one agent, cluster, allocation or user.")
    removing = verb("remove", "Remove an agent, cluster, allocation or user.", "delete")
    for name in ("agent", "cluster", "allocation", "user"):
        listed = listing(name, f"list_{name}s", f"List {name}s.", named=False)
        add_options(listed)
        if name == "allocation":
            listed.add_argument("--cluster", default="", metavar="C", help="only those of this one")
        getting(name, f"get_{name}", f"Show one {name}.")
        removal = removing(name, f"remove_{name}", f"Remove one {name}, if nothing uses it.")
        if name == "cluster":
            removal.add_argument("--force", action="store_true", help="with the allocations in it")
    revoked = verb("revoke", "Revoke one certificate of a user's.")(
        "certificate", "revoke_certificate", "Revoke one certificate; NAME is the user's."
    )
    revoked.add_argument("--number", required=True, metavar="N", help="as it was made with")
    discovered = verb("discover", "Show agents that announced themselves.")(
        "agent", "discover_agents", "Show agents that announced themselves.", named=False
    )
    add_options(discovered)
    verb("test", "Test a cluster.")(
        "cluster", "test_cluster", "Test connectivity, hardware, cabling and topology."
    )
    machines = listing(
        "machine", "list_machines", "List machines, and what is on them.", named=False
    )
    add_options(machines)
    drain = verb("drain", "Take a machine out of service.")(
        "machine", "drain_machine", "Place nothing new on a machine; what is there stays."
    )
    drain.add_argument("--dry-run", action="store_true", help="say what that would mean, no more")
    _changes_of_clusters(verb)
    verb("resume", "Put a machine back into service.")(
        "machine", "resume_machine", "Place partitions on a machine again."
    )
    quota = listing("quota", "list_quotas", "List quotas, and what is used of them.", named=False)
    add_options(quota)
    quota.add_argument("--allocation", default="", metavar="A", help="only those of this one")
    add_options(
        listing("share", "list_shares", "List the weights in the common queue.", named=False)
    )
    setting = verb("set", "Limit what users may have, or set a weight in the common queue.")
    for name, noun in (("set", setting), ("remove", removing)):
        quota = noun("quota", f"{name}_quota", f"{name.capitalize()} a quota.", named=False)
        _quota(quota, name == "set")
        _share(noun("share", f"{name}_share", _SHARES[name], named=False), name == "set")
    moves = verbs.add_parser(
        "moves",
        parents=[common],
        help="Show which launches are asked to move, or have none asked.",
        description="Show which launches are asked to move to other devices, and which would be.",
    )
    moves.set_defaults(action="show_moves")
    permission = moves.add_mutually_exclusive_group()
    permission.add_argument(
        "--never", action="store_true", help="ask nobody from now on; it is kept"
    )
    permission.add_argument(
        "--allow", action="store_true", help="ask those who can move, as at first"
    )
    moves.add_argument("--dry-run", action="store_true", help="change nothing, only show")
    backup = verb("backup", "Back up what the server keeps.")(
        "store", "backup_store", "Write all that the server keeps into a file.", named=False
    )
    backup.add_argument("name", metavar="FILE", help="the file; one that is there is replaced")
    audit = verb("audit", "See whether the audit is as it was written.")(
        "verify", "verify_audit", "Check the hash chains of the audit.", named=False
    )
    audit.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="HEAD",
        help="an entry that must still be there, as the server's log has it each hour; may be "
        "given several times",
    )
    return parser


def _changes_of_clusters(verb: Callable[..., Callable[..., Parser]]) -> None:
    more = verb("add", "Add machines to a cluster that is in use.")(
        "machine", "add_machine", "Add registered agents to a cluster; what runs there goes on."
    )
    more.add_argument("--cluster", required=True, metavar="C", help="the cluster")
    more.add_argument(
        "--link-domain", default="", metavar="D", help="the one they join, or a new one's name"
    )
    other = verb("replace", "Put another machine in one's place.")(
        "machine", "replace_machine", "Put another agent in the place of a machine that is empty."
    )
    other.add_argument("--by", required=True, metavar="AGENT", help="a registered agent")
    for parser in (more, other):
        parser.add_argument("--dry-run", action="store_true", help="say what would be, no more")


def _quota(parser: Parser, sets: bool) -> None:
    add = parser.add_argument
    add("--user", default="", metavar="U", help="of this user, in all allocations together")
    add("--allocation", default="", metavar="A", help="of all in this one; with --user: of that")
    if sets:
        add("--devices", type=not_negative, metavar="N", help="devices; without it, no limit")
        add("--partitions", type=not_negative, metavar="N", help="partitions; else no limit")


def _share(parser: Parser, sets: bool) -> None:
    parser.add_argument(
        "--guest",
        required=True,
        metavar="G",
        help="slurm, 'kubernetes NAME' or people; list shares shows all",
    )
    if sets:
        parser.add_argument(
            "--weight", type=number, required=True, metavar="N", help="from 0.01 to 1000"
        )


def _creation(create: Callable[..., Parser]) -> None:
    agent = create("agent", "create_agent", "Register the agent of a machine.")
    agent.add_argument("--host", default="", metavar="H", help="its address; as it announced it")
    agent.add_argument("--port", type=port, default=8080, metavar="P", help="its port, 8080")
    agent.add_argument(
        "--replace",
        action="store_true",
        help="it has another address, hardware or certificate from now on",
    )
    agent.add_argument(
        "--certificate",
        default="",
        metavar="N",
        help="with TLS: believe the certificate of this number alone, which create printed",
    )
    cluster = create("cluster", "create_cluster", "Make a cluster of registered agents.")
    cluster.add_argument("--agents", metavar="A,B,…", help="in the order of their links")
    cluster.add_argument(
        "--num-ipulinkdomains", type=positive, default=1, metavar="N", help="link domains, 1"
    )
    cluster.add_argument(
        "--topology", default="", metavar="T", help="inside a link domain: mesh, torus"
    )
    cluster.add_argument(
        "--cluster-topology", default="", metavar="T", help="between them: looped, switched, none"
    )
    allocation = create("allocation", "create_allocation", "Set machines of a cluster apart.")
    allocation.add_argument("--cluster", default="", metavar="C", help="the cluster")
    allocation.add_argument("--agents", default="", metavar="A,B,…", help="these machines")
    allocation.add_argument(
        "--size", type=not_negative, default=0, metavar="N", help="so many devices"
    )
    allocation.add_argument("--users", default="", metavar="A,B,…", help="who may use it")
    allocation.add_argument(
        "--scheduler",
        default="",
        metavar="USER",
        help="the user of that role who alone creates in it",
    )
    user = create("user", "create_user", "Make a user with an access key.")
    user.add_argument(
        "--allocations", default="", metavar="A,B,…", help="those the user may use; all"
    )
    user.add_argument(
        "--role", default="user", metavar="R", help="administrator, user, reader, scheduler"
    )
    user.add_argument(
        "--uid",
        default="",
        metavar="ID",
        help="the account that is this user without a key: a number, or its name on this machine",
    )
    certificate = create(
        "certificate", "create_certificate", "Make a certificate for a user, or for an agent."
    )
    certificate.add_argument(
        "--tls-ca",
        default="vipu-certs",
        metavar="DIR",
        help="the authority: what vipu-server --tls-init made; vipu-certs",
    )
    certificate.add_argument(
        "--renew", action="store_true", help="in the place of the one that is there"
    )
    certificate.add_argument(
        "--agent", action="store_true", help="NAME is a machine, and this its agent's"
    )
    certificate.add_argument(
        "--host", default="", metavar="A,B,…", help="names and addresses of the agent's host"
    )
    certificate.add_argument(
        "--days", type=positive, default=365, metavar="N", help="how long it is good for, 365"
    )


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
