"""Which devices of machines a request may get, where links join the devices of a machine.

Sources: NVLink allows any number of devices inside a machine, and whole machines beyond. A switch
joins any GPUs of a rack, so the last machine may be cut (`BlockRule.trims`). That a GCD is a run of
neighbours in the order of their PCI addresses is our choice, since these share switches. The rules
do not depend on allocations.
"""

from __future__ import annotations

from typing import NamedTuple

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._shape_rules import Illegal
from podwright.placement._values import Request


class NodeShape(NamedTuple):
    """A shape: `machines` whole machines, or, if that is 0, `size` devices inside one machine.

    gcd: devices of each GCD. domains: number of link domains, with equally many machines in each;
    None: as few as possible. rest: devices of one more machine.
    """

    machines: int
    size: int
    gcd: int
    domains: int | None
    rest: int = 0


def node_shape(cluster: Cluster, request: Request) -> NodeShape:
    """Return the shape of a request. Raises Illegal."""
    per, noun = cluster.family.devices_per_machine, cluster.family.device_noun
    size, gcds, domains = request.size, request.gcds, request.domains
    if size <= 0:
        raise Illegal("a partition has at least one device", of_size=True)
    if gcds <= 0 or size % gcds:
        raise Illegal(f"{size} {noun}s do not divide evenly into {gcds} GCDs")
    if domains is not None and not 1 <= domains <= len(cluster.domains):
        raise Illegal(f"cluster {cluster.name} has {len(cluster.domains)} link domains")
    if size < per:
        if domains not in (None, 1):
            raise Illegal(f"{size} {noun}s lie in one machine, so in one link domain")
        return NodeShape(0, size, size // gcds, 1)
    machines = size // per
    if size % per and cluster.family.block_rule.trims:
        return _trimmed(cluster, request)
    if size % per:
        raise Illegal(
            f"a partition has up to {per} {noun}s of one machine, or whole machines of {per}",
            of_size=True,
        )
    if gcds % machines:
        raise Illegal(f"a GCD lies in one machine: {gcds} do not divide over {machines} machines")
    if domains is not None and machines % domains:
        raise Illegal(f"{machines} machines do not divide over {domains} link domains")
    total = len(cluster.domains)  # at least one machine for each link domain
    if machines > total:
        total = sum(len(domain.machines) for domain in cluster.domains)
    if machines > total:
        raise Illegal(f"cluster {cluster.name} has {total} machines, not {machines}", of_size=True)
    if cluster.topology is ClusterTopology.NONE:
        widest = max(len(domain.machines) for domain in cluster.domains)
        if machines > widest or domains not in (None, 1):
            raise Illegal(f"no links join the link domains of cluster {cluster.name}", of_size=True)
        domains = 1
    return NodeShape(machines, size, size // gcds, domains)


def _trimmed(cluster: Cluster, request: Request) -> NodeShape:
    """Return whole machines and a part of one more, in one link domain. Raises Illegal."""
    per, noun = cluster.family.devices_per_machine, cluster.family.device_noun
    machines, rest = divmod(request.size, per)
    gcd = request.size // request.gcds
    widest = max(len(domain.machines) for domain in cluster.domains)
    if machines >= widest or request.domains not in (None, 1):
        raise Illegal(
            f"{request.size} {noun}s are not whole machines of {per}: they lie in one link domain, "
            f"of {widest * per} at most",
            of_size=machines >= widest,
        )
    if per % gcd or rest % gcd:
        raise Illegal(
            f"a GCD lies in one machine, and one of {gcd} {noun}s does not divide its {per}"
        )
    return NodeShape(machines, request.size, gcd, 1, rest)


def best_runs(free: int, size: int, gcd: int, width: int) -> list[tuple[int, int]]:
    """Return runs (first, length) for `size` devices of a machine; empty where they do not fit.

    free: a mask of the free devices. There is one run if possible, else one run for each GCD. A run
    begins, if it can, where a block of its size would if all were aligned, so that switches that
    are cut in halves and quarters can follow. The smallest hole that suffices is taken.
    """
    runs: list[tuple[int, int]] = []
    for length, count in ((size, 1), (gcd, size // gcd)):
        step = 1 << (length - 1).bit_length() if count == 1 else 1
        runs, left = [], free
        for _ in range(count):
            first = _best_run(left, length, width, step)
            if first < 0:
                break
            runs.append((first, length))
            left &= ~(((1 << length) - 1) << first)
        else:
            return _joined(sorted(runs))
    return []


def _best_run(free: int, length: int, width: int, step: int) -> int:
    """Return the first device of a run, preferably at a multiple of `step`; -1 for none."""
    best: tuple[bool, int, int] | None = None
    start = 0
    while start < width:
        if not free >> start & 1:
            start += 1
            continue
        end = start
        while end < width and free >> end & 1:
            end += 1
        for first in range(start, end - length + 1):
            key = (first % step != 0, end - start, first)
            best = key if best is None or key < best else best
        start = end
    return best[2] if best else -1


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for first, length in runs:
        if out and sum(out[-1]) == first:
            out[-1] = (out[-1][0], out[-1][1] + length)
        else:
            out.append((first, length))
    return out
