"""`vipu`: partitions by hand. It parses, calls and prints, and decides nothing.

Grammar, options and the success line are those of V-IPU's command of the same name. Its documents
do not show failures, `get` for people, and the columns of most tables; these are our choice.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from podwright.cli.partitions import _options as options
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._noun_grammar import (
    GroupedListOptions,
    Noun,
    NounVerb,
    PlainVerb,
    list_noun,
    noun_parser,
    run_noun,
)
from podwright.cli.shared._server_options import Connect, connect, run_with_server

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


_VERBS = (
    NounVerb(
        "create",
        "Create a partition.",
        (Noun("partition", "Create a partition.", options.CreateOptions),),
    ),
    NounVerb(
        "list",
        "List partitions, clusters, allocations, devices or leases.",
        (
            list_noun("partition", options.InBothOptions),
            list_noun("cluster"),
            list_noun("allocation", options.InClusterOptions),
            list_noun("device", options.InBothOptions),
            list_noun("lease"),
            list_noun("waiter"),
            list_noun("quota", options.InAllocationOptions),
            list_noun("queue", summary="List all who wait: people, and schedulers' jobs."),
            list_noun("ipu-attr", GroupedListOptions, "List the attributes of each device."),
        ),
    ),
    NounVerb(
        "get",
        "Show one partition, cluster or allocation.",
        (
            Noun("partition", "Show a partition.", options.PartitionOptions),
            Noun("cluster", "Show a cluster."),
            Noun("allocation", "Show an allocation."),
        ),
    ),
    NounVerb(
        "reset",
        "Reset a partition.",
        (Noun("partition", "Reset the devices of a partition.", options.ResetOptions),),
    ),
    NounVerb(
        "remove",
        "Remove a partition, or end a lease.",
        (
            Noun("partition", "Remove a partition.", options.RemovePartitionOptions),
            Noun(
                "lease",
                "End a lease. Its devices become free when none of its processes can reach them.",
                options.EndLeaseOptions,
            ),
            Noun("waiter", "Leave the queue."),
        ),
        ("delete",),
    ),
    PlainVerb(
        "explain",
        "Explain why a request cannot start now, and what could start.",
        options.ExplainOptions,
    ),
    PlainVerb(
        "events",
        "Show who did what, when, from where, and how it ended.",
        options.EventOptions,
    ),
)


def build_parser(words: Sequence[str] = (), prog: str = "vipu") -> Parser:
    """Return the parser of the whole command, or what reads these words: see noun_parser.

    Completion is made from it, too. prog: what the user has typed.
    """
    description = "Create, list, get, reset and remove partitions of a pod."
    return noun_parser(prog, description, _EXAMPLES, _VERBS, words)


def main(
    argv: Sequence[str] | None = None, connect: Connect = connect, *, prog: str = "vipu"
) -> int:
    """Run the command, and return the exit code.

    connect: returns the server. prog: what the user has typed, for messages.
    """
    return run_with_server(lambda: _main(argv, connect, prog), prog)


def _main(argv: Sequence[str] | None, connect: Connect, prog: str) -> int:
    verbs = "create, list, get, reset, remove, explain or events"
    words = list(sys.argv[1:] if argv is None else argv)
    return run_noun(
        build_parser(words, prog), words, connect, verbs, "podwright.cli.partitions._verbs"
    )


if __name__ == "__main__":
    raise SystemExit(main())
