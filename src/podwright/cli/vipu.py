"""`vipu`: partitions by hand. It parses, calls and prints, and decides nothing.

Grammar, options and the success line are those of V-IPU's command of the same name. Its documents
do not show failures, `get` for people, and the columns of most tables; these are our choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser, not_negative, positive, run, seconds
from podwright.cli.shared._listing import add_options
from podwright.cli.shared._server import connect, said, server_options

if TYPE_CHECKING:
    from podwright.client import FoundServer

Connect = Callable[[argparse.Namespace], "FoundServer"]

_EXAMPLES = """\
examples:
  vipu create partition p1 --size 4
  vipu create partition p2 --size 32 --num-gcds 2 --num-ilds 2 --allocation a1
  vipu list partitions --json
  vipu get partition p1
  vipu get partition p1 --gcd 0 --ipuof-configs > p1_ipuof.conf
  vipu reset partition p1
  vipu remove partition p1
  vipu create partition big --size 64 --wait --duration 3600
  vipu explain partition --size 64

Without -H or --context, vipu takes the first of these servers: the one in
/etc/vipu/vipu-cli.hcl, the current context, this machine's, this user's own, localhost:8090.
If there is none, vipu starts a simulated one for you.

exit codes: 0 done; 1 refused; 2 wrong usage; 69 no server; 75 not free now.
With code 75, try again later or add --wait.
`vipu VERB NOUN --help` lists the options of each command."""

_VERBS = "create, list, get, reset, remove, explain or events"
_ROUTING = ("default", "dnc", "swnc", "btnc", "ringswnc")
_GW_ROUTING = ("default", "ring", "swring")


def build_parser() -> Parser:
    """Return the parser of the whole command. Completion is made from it, too."""
    common = server_options()
    common.add_argument("--json", "--showjson", action="store_true", help="print JSON")
    parser = Parser(
        prog="vipu",
        parents=[common],
        description="Create, list, get, reset and remove partitions of a pod.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"vipu (Podwright) {__version__}")
    parser.add_argument(
        "--server-version", action="store_true", help="print the server's version and address"
    )
    verbs = parser.add_subparsers(metavar="VERB", dest="verb")

    def verb(name: str, summary: str, *aliases: str) -> Callable[..., Parser]:
        word = verbs.add_parser(name, help=summary, description=summary, aliases=aliases)
        nouns = word.add_subparsers(metavar="NOUN", dest="noun", required=True)

        def noun(name: str, action: str, summary: str, *, named: bool = False) -> Parser:
            child: Parser = nouns.add_parser(
                name, aliases=[f"{name}s"], parents=[common], help=summary, description=summary
            )
            child.set_defaults(action=action)
            if named:
                child.add_argument("name", metavar="NAME", help=f"the {name}'s name")
            return child

        return noun

    create = verb("create", "Create a partition.")
    _creation(create("partition", "create_partition", "Create a partition.", named=True))
    _listing(verb("list", "List partitions, clusters, allocations, devices or leases."))
    _getting(verb("get", "Show one partition, cluster or allocation."))

    reset = verb("reset", "Reset a partition.")(
        "partition", "reset_partition", "Reset the devices of a partition.", named=True
    )
    reset.add_argument("--relocatable", action="store_true", help="let it move to other devices")
    reset.add_argument(
        "--force", action="store_true", help="reset it even if somebody has a lease on it"
    )

    remove = verb("remove", "Remove a partition, or end a lease.", "delete")
    removal = remove("partition", "remove_partition", "Remove a partition.", named=True)
    removal.add_argument(
        "--force", action="store_true", help="remove it in spite of errors and leases"
    )
    over = remove(
        "lease",
        "remove_lease",
        "End a lease. Its devices become free when none of its processes can reach them.",
        named=True,
    )
    over.add_argument(
        "--force",
        action="store_true",
        help="free the devices at once; for administrators who know that no process is left",
    )
    remove("waiter", "remove_waiter", "Leave the queue.", named=True)
    _explaining(verbs, common)
    _events(verbs, common)
    return parser


def _creation(parser: Parser) -> None:
    add = parser.add_argument
    add("--size", type=positive, metavar="N", help="devices; needed unless --devices is given")
    add("--allocation", default="", metavar="A", help="the allocation to take them from")
    add("--cluster", default="", metavar="C", help="the cluster to take them from")
    add(
        "--reconfigurable",
        action="store_true",
        help="let programs choose devices inside the partition",
    )
    add(
        "--num-gcds",
        "--gcds",
        type=positive,
        default=0,
        metavar="N",
        help="host processes; without it each launch divides the partition as it needs",
    )
    add(
        "--num-replicas",
        "--gcd-sync-replicas",
        type=not_negative,
        default=0,
        metavar="N",
        help="replicas over all GCDs; as many as GCDs by default",
    )
    add(
        "--num-ilds",
        type=not_negative,
        default=0,
        metavar="N",
        help="number of link domains to span",
    )
    add(
        "--routing",
        choices=_ROUTING,
        type=str.lower,
        default="default",
        metavar="R",
        help=f"on the links of a domain: {', '.join(_ROUTING)}",
    )
    add(
        "--gw-routing",
        choices=_GW_ROUTING,
        type=str.lower,
        default="default",
        metavar="R",
        help=f"between link domains: {', '.join(_GW_ROUTING)}",
    )
    add("--sync-type", default="", metavar="T", help="c2-compatible, pod-native-default, …")
    add("--devices", default="", metavar="D", help="exactly these: DOMAIN:OFFSETS, say 0:0-3,0:8")
    add("--profile", default="", metavar="P", help="slices of GPUs (MIG) of this kind: 1g.10gb")
    add(
        "--host",
        default="",
        metavar="H[,H…]",
        help="of a pool: the hosts to which the devices are attached",
    )
    add(
        "--no-auto-reset", action="store_true", help="do not reset it by itself when it is in error"
    )
    add("--relocatable", action="store_true", help="let it move to other devices when its own fail")
    add(
        "--movable",
        action="store_true",
        help="let the server ask its launch to move to other devices",
    )
    add(
        "--system-wide",
        action="store_true",
        help="write IPUoF files for all accounts, in /etc/ipuof.conf.d",
    )
    add("--no-ipuof-files", action="store_true", help="write no IPUoF files")
    add("--wait", action="store_true", help="wait in the queue for devices that are not free yet")
    add(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="in the queue: the higher goes first (0)",
    )
    add(
        "--duration",
        type=seconds,
        default=0.0,
        metavar="S",
        help="how many seconds it will be needed; estimates for others use it",
    )
    add("--index", help=argparse.SUPPRESS)


def _explaining(verbs: Any, common: Parser) -> None:
    summary = "Explain why a request cannot start now, and what could start."
    parser = verbs.add_parser("explain", parents=[common], help=summary, description=summary)
    parser.set_defaults(action="explain")
    add = parser.add_argument
    add(
        "what",
        metavar="WHAT",
        nargs="?",
        default="",
        help="`partition` with its options, or a waiter, lease, partition",
    )
    add("name", metavar="NAME", nargs="?", default="", help="after `partition`: one that exists")
    add("--job", default="", metavar="ID", help="a job of Slurm's: why it waits, or what it holds")
    add(
        "--site",
        default="",
        metavar="FILE",
        help="with --job: what configure wrote",
    )
    _creation(parser)


def _events(verbs: Any, common: Parser) -> None:
    summary = "Show who did what, when, from where, and how it ended."
    parser = verbs.add_parser("events", parents=[common], help=summary, description=summary)
    parser.set_defaults(action="events")
    parser.add_argument("--follow", action="store_true", help="keep printing new events")
    parser.add_argument(
        "--since", type=not_negative, default=0, metavar="N", help="only events after number N"
    )


def _listing(noun: Callable[..., Parser]) -> None:
    for name, filters in (
        ("partition", ("cluster", "allocation")),
        ("cluster", ()),
        ("allocation", ("cluster",)),
        ("device", ("cluster", "allocation")),
        ("lease", ()),
        ("waiter", ()),
        ("quota", ("allocation",)),
    ):
        child = noun(name, f"list_{name}s", f"List {name}s.")
        add_options(child)
        for key in filters:
            child.add_argument(
                f"--{key}", default="", metavar=key[0].upper(), help=f"only those of this {key}"
            )
    queue = noun("queue", "list_queue", "List all who wait: people, and schedulers' jobs.")
    add_options(queue)
    attributes = noun("ipu-attr", "list_attributes", "List the attributes of each device.")
    add_options(attributes, sortable=False)


def _getting(noun: Callable[..., Parser]) -> None:
    child = noun("partition", "get_partition", "Show a partition.", named=True)
    child.add_argument("--gcd", type=not_negative, metavar="N", help="only this GCD")
    child.add_argument(
        "--ipuof-configs",
        action="store_true",
        help="print the IPUoF configuration as JSON, in the field names of V-IPU's protocol "
        "(those of its own files are not public)",
    )
    noun("cluster", "get_cluster", "Show a cluster.", named=True)
    noun("allocation", "get_allocation", "Show an allocation.", named=True)


def main(argv: Sequence[str] | None = None, connect: Connect = connect) -> int:
    """Run the command, and return the exit code. connect: returns the server."""
    return run(
        lambda: _main(argv, connect), prog="vipu", describe=lambda error: said(error, "vipu")
    )


def _main(argv: Sequence[str] | None, connect: Connect) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if not arguments.server_version and arguments.verb is None:
        parser.error(f"missing VERB: {_VERBS}; see --help")
    from podwright.cli.partitions._verbs import perform  # after the words are known to be right

    return perform(arguments, connect)


if __name__ == "__main__":
    raise SystemExit(main())
