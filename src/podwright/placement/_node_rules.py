"""Which devices of machines a request may get, where links join the devices of a machine.

Sources: NVLink allows any number of devices inside a machine, and whole machines beyond. A switch
joins any GPUs of a rack, so the last machine may be cut (`BlockRule.trims`). That a GCD is a run of
neighbours in the order of their PCI addresses is our choice, since these share switches. The rules
do not depend on allocations.
"""

from __future__ import annotations

from typing import NamedTuple

from podwright.fabric import Cluster, ClusterTopology
from podwright.placement._placement_types import Request
from podwright.placement._shape_rules import IllegalShape


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
    """Return the shape of a request. Raises IllegalShape."""
    devices_per_machine, device_noun = (
        cluster.family.devices_per_machine,
        cluster.family.device_noun,
    )
    device_count, gcd_count, domain_count = request.size, request.gcds, request.domains
    if device_count <= 0:
        raise IllegalShape("a partition has at least one device", of_size=True)
    if gcd_count <= 0 or device_count % gcd_count:
        raise IllegalShape(
            f"{device_count} {device_noun}s do not divide evenly into {gcd_count} GCDs"
        )
    if domain_count is not None and not 1 <= domain_count <= len(cluster.domains):
        raise IllegalShape(f"cluster {cluster.name} has {len(cluster.domains)} link domains")
    if device_count < devices_per_machine:
        if domain_count not in (None, 1):
            raise IllegalShape(
                f"{device_count} {device_noun}s lie in one machine, so in one link domain"
            )
        return NodeShape(0, device_count, device_count // gcd_count, 1)
    machine_count = device_count // devices_per_machine
    if device_count % devices_per_machine and cluster.family.block_rule.trims:
        return _trimmed_shape(cluster, request)
    if device_count % devices_per_machine:
        raise IllegalShape(
            f"a partition has up to {devices_per_machine} {device_noun}s of one machine, or whole "
            f"machines of {devices_per_machine}",
            of_size=True,
        )
    if gcd_count % machine_count:
        raise IllegalShape(
            f"a GCD lies in one machine: {gcd_count} do not divide over {machine_count} machines"
        )
    if domain_count is not None and machine_count % domain_count:
        raise IllegalShape(
            f"{machine_count} machines do not divide over {domain_count} link domains"
        )
    machine_limit = len(cluster.domains)  # at least one machine for each link domain
    if machine_count > machine_limit:
        machine_limit = sum(len(domain.machines) for domain in cluster.domains)
    if machine_count > machine_limit:
        raise IllegalShape(
            f"cluster {cluster.name} has {machine_limit} machines, not {machine_count}",
            of_size=True,
        )
    if cluster.topology is ClusterTopology.NONE:
        largest_domain = max(len(domain.machines) for domain in cluster.domains)
        if machine_count > largest_domain or domain_count not in (None, 1):
            raise IllegalShape(
                f"no links join the link domains of cluster {cluster.name}", of_size=True
            )
        domain_count = 1
    return NodeShape(machine_count, device_count, device_count // gcd_count, domain_count)


def _trimmed_shape(cluster: Cluster, request: Request) -> NodeShape:
    """Return whole machines and a part of one more, in one link domain. Raises IllegalShape."""
    devices_per_machine, device_noun = (
        cluster.family.devices_per_machine,
        cluster.family.device_noun,
    )
    machine_count, remainder = divmod(request.size, devices_per_machine)
    gcd_size = request.size // request.gcds
    largest_domain = max(len(domain.machines) for domain in cluster.domains)
    if machine_count >= largest_domain or request.domains not in (None, 1):
        raise IllegalShape(
            f"{request.size} {device_noun}s are not whole machines of {devices_per_machine}: they "
            "lie in one link domain, "
            f"of {largest_domain * devices_per_machine} at most",
            of_size=machine_count >= largest_domain,
        )
    if devices_per_machine % gcd_size or remainder % gcd_size:
        raise IllegalShape(
            f"a GCD lies in one machine, and one of {gcd_size} {device_noun}s does not divide its "
            f"{devices_per_machine}"
        )
    return NodeShape(machine_count, request.size, gcd_size, 1, remainder)


def best_device_runs(
    free_mask: int, device_count: int, gcd_size: int, devices_per_machine: int
) -> list[tuple[int, int]]:
    """Return runs (first, length) for `device_count` devices of a machine; empty where they do not
    fit.

    free_mask: a mask of the free devices. There is one run if possible, else one run for each GCD.
    A run begins, if it can, where a block of its size would if all were aligned, so that switches
    that are cut in halves and quarters can follow. The smallest hole that suffices is taken.
    """
    runs: list[tuple[int, int]] = []
    for run_length, run_count in ((device_count, 1), (gcd_size, device_count // gcd_size)):
        alignment = 1 << (run_length - 1).bit_length() if run_count == 1 else 1
        runs, remaining_mask = [], free_mask
        for _ in range(run_count):
            run_start = _best_run_start(remaining_mask, run_length, devices_per_machine, alignment)
            if run_start < 0:
                break
            runs.append((run_start, run_length))
            remaining_mask &= ~(((1 << run_length) - 1) << run_start)
        else:
            return _join_adjacent_runs(sorted(runs))
    return []


def _best_run_start(
    free_mask: int, run_length: int, devices_per_machine: int, alignment: int
) -> int:
    """Return the first device of a run, preferably at a multiple of `alignment`; -1 for none."""
    best_rank: tuple[bool, int, int] | None = None
    hole_start = 0
    while hole_start < devices_per_machine:
        if not free_mask >> hole_start & 1:
            hole_start += 1
            continue
        hole_end = hole_start
        while hole_end < devices_per_machine and free_mask >> hole_end & 1:
            hole_end += 1
        for run_start in range(hole_start, hole_end - run_length + 1):
            run_rank = (run_start % alignment != 0, hole_end - hole_start, run_start)
            best_rank = run_rank if best_rank is None or run_rank < best_rank else best_rank
        hole_start = hole_end
    return best_rank[2] if best_rank else -1


def _join_adjacent_runs(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined_runs: list[tuple[int, int]] = []
    for run_start, length in runs:
        if joined_runs and sum(joined_runs[-1]) == run_start:
            joined_runs[-1] = (joined_runs[-1][0], joined_runs[-1][1] + length)
        else:
            joined_runs.append((run_start, length))
    return joined_runs
