"""`vipu`: partitions by hand. It parses, calls and prints, and decides nothing.

Grammar, options and the success line are those of V-IPU's command of the same name. Its documents
do not show failures, `get` for people, and the columns of most tables; these are our choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from podwright import option_rows as opt
from podwright.cli.shared._arguments import Parser, run
from podwright.cli.shared._nouns import (
    GroupedListOptions,
    ListOptions,
    Noun,
    NounVerb,
    PlainVerb,
    noun_parser,
)
from podwright.cli.shared._server import connect, said
from podwright.option_rows import not_negative, positive, seconds

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

_ROUTING = ("default", "dnc", "swnc", "btnc", "ringswnc")
_GW_ROUTING = ("default", "ring", "swring")


class _CreateOptions(opt.OptionTable):
    size = opt.value("devices; needed unless --devices is given", "N", positive, None)
    allocation = opt.text("the allocation to take them from", "A")
    cluster = opt.text("the cluster to take them from", "C")
    reconfigurable = opt.flag("let programs choose devices inside the partition")
    num_gcds = opt.value(
        "host processes; without it each launch divides the partition as it needs",
        "N",
        positive,
        0,
        name="--num-gcds --gcds",
    )
    num_replicas = opt.value(
        "replicas over all GCDs; as many as GCDs by default",
        "N",
        not_negative,
        0,
        name="--num-replicas --gcd-sync-replicas",
    )
    num_ilds = opt.value("number of link domains to span", "N", not_negative, 0)
    routing = opt.choice(
        f"on the links of a domain: {', '.join(_ROUTING)}", _ROUTING, "default", "R", str.lower
    )
    gw_routing = opt.choice(
        f"between link domains: {', '.join(_GW_ROUTING)}", _GW_ROUTING, "default", "R", str.lower
    )
    sync_type = opt.text("c2-compatible, pod-native-default, …", "T")
    devices = opt.text("exactly these: DOMAIN:OFFSETS, say 0:0-3,0:8", "D")
    profile = opt.text("slices of GPUs (MIG) of this kind: 1g.10gb", "P")
    host = opt.text("of a pool: the hosts to which the devices are attached", "H[,H…]")
    no_auto_reset = opt.flag("do not reset it by itself when it is in error")
    relocatable = opt.flag("let it move to other devices when its own fail")
    movable = opt.flag("let the server ask its launch to move to other devices")
    system_wide = opt.flag("write IPUoF files for all accounts, in /etc/ipuof.conf.d")
    no_ipuof_files = opt.flag("write no IPUoF files")
    wait = opt.flag("wait in the queue for devices that are not free yet")
    priority = opt.value("in the queue: the higher goes first (0)", "N", int, 0)
    duration = opt.value(
        "how many seconds it will be needed; estimates for others use it", "S", seconds, 0.0
    )
    index = opt.optional(argparse.SUPPRESS)


class _SubjectOptions(opt.OptionTable):
    subject = opt.optional_argument(
        "`partition` with its options, or a waiter, lease, partition", "WHAT", ""
    )
    name = opt.optional_argument("after `partition`: one that exists", "NAME", "")
    job = opt.text("a job of Slurm's: why it waits, or what it holds", "ID")
    site = opt.text("with --job: what configure wrote", "FILE")


class _ExplainOptions(_CreateOptions, _SubjectOptions):
    """What is explained, then the request: the rows of the second base come first."""


class _EventOptions(opt.OptionTable):
    follow = opt.flag("keep printing new events")
    since = opt.value("only events after number N", "N", not_negative, 0)


class _InClusterOptions(ListOptions):
    cluster = opt.text("only those of this cluster", "C")


class _InAllocationOptions(ListOptions):
    allocation = opt.text("only those of this allocation", "A")


class _InBothOptions(_InClusterOptions):
    allocation = opt.text("only those of this allocation", "A")


class _PartitionOptions(opt.OptionTable):
    gcd = opt.value("only this GCD", "N", not_negative, None)
    ipuof_configs = opt.flag(
        "print the IPUoF configuration as JSON, in the field names of V-IPU's protocol "
        "(those of its own files are not public)"
    )


class _ResetOptions(opt.OptionTable):
    relocatable = opt.flag("let it move to other devices")
    force = opt.flag("reset it even if somebody has a lease on it")


class _RemoveOptions(opt.OptionTable):
    force = opt.flag("remove it in spite of errors and leases")


class _EndLeaseOptions(opt.OptionTable):
    force = opt.flag(
        "free the devices at once; for administrators who know that no process is left"
    )


def _list(name: str, options: type[opt.OptionTable] = ListOptions) -> Noun:
    return Noun(name, f"list_{name}s", f"List {name}s.", options, named=False)


_VERBS = (
    NounVerb(
        "create",
        "Create a partition.",
        (Noun("partition", "create_partition", "Create a partition.", _CreateOptions),),
    ),
    NounVerb(
        "list",
        "List partitions, clusters, allocations, devices or leases.",
        (
            _list("partition", _InBothOptions),
            _list("cluster"),
            _list("allocation", _InClusterOptions),
            _list("device", _InBothOptions),
            _list("lease"),
            _list("waiter"),
            _list("quota", _InAllocationOptions),
            Noun(
                "queue",
                "list_queue",
                "List all who wait: people, and schedulers' jobs.",
                ListOptions,
                named=False,
            ),
            Noun(
                "ipu-attr",
                "list_attributes",
                "List the attributes of each device.",
                GroupedListOptions,
                named=False,
            ),
        ),
    ),
    NounVerb(
        "get",
        "Show one partition, cluster or allocation.",
        (
            Noun("partition", "get_partition", "Show a partition.", _PartitionOptions),
            Noun("cluster", "get_cluster", "Show a cluster."),
            Noun("allocation", "get_allocation", "Show an allocation."),
        ),
    ),
    NounVerb(
        "reset",
        "Reset a partition.",
        (Noun("partition", "reset_partition", "Reset the devices of a partition.", _ResetOptions),),
    ),
    NounVerb(
        "remove",
        "Remove a partition, or end a lease.",
        (
            Noun("partition", "remove_partition", "Remove a partition.", _RemoveOptions),
            Noun(
                "lease",
                "remove_lease",
                "End a lease. Its devices become free when none of its processes can reach them.",
                _EndLeaseOptions,
            ),
            Noun("waiter", "remove_waiter", "Leave the queue."),
        ),
        ("delete",),
    ),
    PlainVerb(
        "explain",
        "explain",
        "Explain why a request cannot start now, and what could start.",
        _ExplainOptions,
    ),
    PlainVerb(
        "events",
        "events",
        "Show who did what, when, from where, and how it ended.",
        _EventOptions,
    ),
)


def build_parser() -> Parser:
    """Return the parser of the whole command. Completion is made from it, too."""
    description = "Create, list, get, reset and remove partitions of a pod."
    return noun_parser("vipu", description, _EXAMPLES, _VERBS)


def main(argv: Sequence[str] | None = None, connect: Connect = connect) -> int:
    """Run the command, and return the exit code. connect: returns the server."""
    return run(
        lambda: _main(argv, connect), prog="vipu", describe=lambda error: said(error, "vipu")
    )


def _main(argv: Sequence[str] | None, connect: Connect) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if not arguments.server_version and arguments.verb is None:
        parser.error(
            "missing VERB: create, list, get, reset, remove, explain or events; see --help"
        )
    from podwright.cli.partitions._verbs import perform  # after the words are known to be right

    return perform(arguments, connect)


if __name__ == "__main__":
    raise SystemExit(main())
