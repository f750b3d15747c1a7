"""The options of `vipu`."""

from __future__ import annotations

import argparse

from podwright.cli.shared._noun_grammar import OUTPUT, ListOptions, NamedOptions
from podwright.cli.shared._server_options import JsonEverywhere
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import not_negative, positive, seconds

_ROUTING = ("default", "dnc", "swnc", "btnc", "ringswnc")
_GW_ROUTING = ("default", "ring", "swring")


class RequestOptions(JsonEverywhere):
    """A request for a partition."""

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


class CreateOptions(RequestOptions, NamedOptions):
    """`vipu create partition`."""


class _SubjectOptions(JsonEverywhere):
    subject = opt.optional_argument(
        "`partition` with its options, or a waiter, lease, partition", "WHAT", ""
    )
    name = opt.optional_argument("after `partition`: one that exists", "NAME", "")
    job = opt.text("a job of Slurm's: why it waits, or what it holds", "ID")
    site = opt.text("with --job: what configure wrote", "FILE")


class ExplainOptions(RequestOptions, _SubjectOptions):
    """What is explained, then the request: the rows of the second base come first."""


class EventOptions(JsonEverywhere):
    """`vipu events`."""

    output = OUTPUT
    follow = opt.flag("keep printing new events")
    since = opt.value("only events after number N", "N", not_negative, 0)


class InClusterOptions(ListOptions):
    """A list of what is in clusters."""

    cluster = opt.text("only those of this cluster", "C")


class InAllocationOptions(ListOptions):
    """A list of what is in allocations."""

    allocation = opt.text("only those of this allocation", "A")


class InBothOptions(InClusterOptions):
    """A list of what is in clusters and allocations."""

    allocation = opt.text("only those of this allocation", "A")


class PartitionOptions(NamedOptions):
    """`vipu get partition`."""

    gcd = opt.value("only this GCD", "N", not_negative, None)
    ipuof_configs = opt.flag(
        "print the IPUoF configuration as JSON, in the field names of V-IPU's protocol "
        "(those of its own files are not public)"
    )


class ResetOptions(NamedOptions):
    """`vipu reset partition`."""

    relocatable = opt.flag("let it move to other devices")
    force = opt.flag("reset it even if somebody has a lease on it")


class RemovePartitionOptions(NamedOptions):
    """`vipu remove partition`."""

    force = opt.flag("remove it in spite of errors and leases")


class EndLeaseOptions(NamedOptions):
    """`vipu remove lease`."""

    force = opt.flag(
        "free the devices at once; for administrators who know that no process is left"
    )
