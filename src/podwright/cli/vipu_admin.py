"""`vipu-admin`: agents, clusters, allocations and users of a server. It parses, calls and prints.

Grammar, the success line and the known options are those of V-IPU's command of the same name. Our
choice are quotas, shares, machines, backups, and all tables except that of `discover agent`. Output
about partitions is that of `vipu`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

from podwright.cli.admin import _options as options
from podwright.cli.partitions._options import InAllocationOptions, InClusterOptions
from podwright.cli.shared._arguments import Parser
from podwright.cli.shared._noun_grammar import (
    NamedOptions,
    Noun,
    NounVerb,
    PlainVerb,
    list_noun,
    noun_parser,
    run_noun,
)
from podwright.cli.shared._server_options import Connect, connect_to_one, run_with_server

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


def _get(name: str) -> Noun:
    return Noun(name, f"Show one {name}.")


def _remove(name: str, kind: type[NamedOptions] = NamedOptions) -> Noun:
    return Noun(name, f"Remove one {name}, if nothing uses it.", kind)


def _of_machine(
    verb: str, summary: str, description: str, kind: type[NamedOptions] = NamedOptions
) -> NounVerb:
    return NounVerb(verb, summary, (Noun("machine", description, kind),))


_TABLE = (
    NounVerb(
        "create",
        "Make an agent, cluster, allocation, user or certificate.",
        (
            Noun("agent", "Register the agent of a machine.", options.AgentOptions),
            Noun("cluster", "Make a cluster of registered agents.", options.ClusterOptions),
            Noun("allocation", "Set machines of a cluster apart.", options.AllocationOptions),
            Noun("user", "Make a user with an access key.", options.UserOptions),
            Noun(
                "certificate",
                "Make a certificate for a user, or for an agent.",
                options.CertificateOptions,
            ),
        ),
    ),
    NounVerb(
        "list",
        "List agents, clusters, allocations or users.",
        (
            list_noun("agent"),
            list_noun("cluster"),
            list_noun("allocation", InClusterOptions),
            list_noun("user"),
            list_noun("machine", summary="List machines, and what is on them."),
            list_noun("quota", InAllocationOptions, "List quotas, and what is used of them."),
            list_noun("share", summary="List the weights in the common queue."),
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
            _remove("cluster", options.RemoveClusterOptions),
            _remove("allocation"),
            _remove("user"),
            Noun("quota", "Remove a quota.", options.QuotaOptions),
            Noun("share", _SHARES["remove"], options.ShareOptions),
        ),
        ("delete",),
    ),
    NounVerb(
        "revoke",
        "Revoke one certificate of a user's.",
        (
            Noun(
                "certificate",
                "Revoke one certificate; NAME is the user's.",
                options.RevokeOptions,
            ),
        ),
    ),
    NounVerb(
        "discover",
        "Show agents that announced themselves.",
        (list_noun("agent", summary="Show agents that announced themselves."),),
    ),
    NounVerb(
        "test",
        "Test a cluster.",
        (Noun("cluster", "Test connectivity, hardware, cabling and topology."),),
    ),
    _of_machine(
        "drain",
        "Take a machine out of service.",
        "Place nothing new on a machine; what is there stays.",
        options.DrainOptions,
    ),
    _of_machine(
        "add",
        "Add machines to a cluster that is in use.",
        "Add registered agents to a cluster; what runs there goes on.",
        options.AddMachineOptions,
    ),
    _of_machine(
        "replace",
        "Put another machine in one's place.",
        "Put another agent in the place of a machine that is empty.",
        options.ReplaceMachineOptions,
    ),
    _of_machine(
        "resume", "Put a machine back into service.", "Place partitions on a machine again."
    ),
    NounVerb(
        "set",
        "Limit what users may have, or set a weight in the common queue.",
        (
            Noun("quota", "Set a quota.", options.SetQuotaOptions),
            Noun("share", _SHARES["set"], options.SetShareOptions),
        ),
    ),
    PlainVerb(
        "moves",
        "Show which launches are asked to move to other devices, and which would be.",
        options.MovesOptions,
        help="Show which launches are asked to move, or have none asked.",
    ),
    NounVerb(
        "backup",
        "Back up what the server keeps.",
        (Noun("store", "Write all that the server keeps into a file.", options.BackupOptions),),
    ),
    NounVerb(
        "audit",
        "See whether the audit is as it was written.",
        (Noun("verify", "Check the hash chains of the audit.", options.AuditOptions),),
    ),
)


def build_parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the whole command, or what reads these words: see noun_parser."""
    description = "Administer agents, clusters, allocations and users."
    return noun_parser("vipu-admin", description, _EXAMPLES, _TABLE, words)


def main(argv: Sequence[str] | None = None, connect: Connect = connect_to_one) -> int:
    """Run the command, and return the exit code. connect: returns the server."""
    return run_with_server(lambda: _main(argv, connect), "vipu-admin")


def _main(argv: Sequence[str] | None, connect: Connect) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if _is_of_vipu(words):
        from podwright.cli.vipu import main as vipu

        return vipu(words, connect, prog="vipu-admin")
    verbs = "create, list, get, set, add, remove, drain, backup, …"
    return run_noun(build_parser(words), words, connect, verbs, "podwright.cli.admin._verbs")


def _is_of_vipu(words: Sequence[str]) -> bool:
    """Return whether the verb is one of vipu's, or has one of vipu's nouns."""
    if next((word for word in words if word in ("events", *_VERBS)), "") in _ALL_OF_VIPU:
        return True
    return any(
        verb in _VERBS and noun.removesuffix("s") in _OF_VIPU for verb, noun in pairwise(words)
    )


if __name__ == "__main__":
    raise SystemExit(main())
