"""Take devices for a partition that is about to be written down, and give them back."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Final, NamedTuple

from podwright.controller.requests import _quotas as quotas
from podwright.controller.requests._allocation_access import guard
from podwright.controller.requests._explain import in_the_way
from podwright.controller.requests._pool_hosts import known_hosts
from podwright.controller.requests._refusals import no_placement_error
from podwright.controller.requests._reserve_devices import reservations_lent_to
from podwright.controller.requests._spec import CheckedSpec, check_name
from podwright.controller.state._caller import Caller, check_creator
from podwright.controller.state._claimed_devices import Admission
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import PartitionRecord
from podwright.errors import (
    AlreadyExists,
    InvalidRequest,
    NoCapacity,
    PodwrightError,
    WrongState,
)
from podwright.ground.plural import span
from podwright.placement import Placement, Refusal
from podwright.wire import Routing

MAX_DURATION_S: Final = 366 * 86400.0


class DeviceClaim(NamedTuple):
    """Devices that the index has taken for a caller who is about to start.

    checked: what they are for. They count towards the quotas of `admitted`. routing: inside their
    link domains. hosts: to which a pool's devices will be attached.
    """

    checked: CheckedSpec
    cluster: IndexedCluster
    placement: Placement
    admitted: Admission
    routing: Routing
    hosts: tuple[str, ...] = ()


def claim_new(
    state: ControllerState,
    caller: Caller,
    checked: CheckedSpec,
    *,
    guest: str = "",
    duration: float = 0.0,
    claim: DeviceClaim | None = None,
) -> DeviceClaim:
    """Check that a partition may be created, and take its devices.

    guest: see `place`. duration: seconds for which it is needed; 0: unknown. claim: its devices, if
    they are taken already.

    Raises InvalidRequest, Denied, AlreadyExists, NotFound or NoCapacity; then nothing is taken.
    """
    try:
        name, action = checked.spec.name, checked.action
        check_name(name)
        check_creator(caller, action)
        check_duration(duration, action)
        if name in state.partitions:
            raise AlreadyExists(
                f"there is a partition {name} already",
                operation=action,
                would_work="choose another name, or remove it first",
                partition=name,
            )
    except BaseException:
        give_back(state, claim)
        raise
    if claim is None:
        return place(state, checked, owner=caller.name, guest=guest)
    return claim._replace(checked=checked)


def check_duration(duration: float, action: str) -> None:
    """Raise InvalidRequest for a duration that is not possible."""
    if not 0 <= duration <= MAX_DURATION_S:
        raise InvalidRequest(
            f"nothing can be needed for {span(duration)}",
            operation=action,
            would_work=f"say how long, up to {MAX_DURATION_S:.0f} s, or leave it out",
        )


def place(
    state: ControllerState,
    checked: CheckedSpec,
    *,
    owner: str,
    guest: str = "",
    instead_of: PartitionRecord | None = None,
) -> DeviceClaim:
    """Take devices for a partition in the first cluster that has them.

    owner: whose it will be. guest: the scheduler that asks, which may have what is kept for it.
    instead_of: a partition that goes.

    Raises InvalidRequest, NotFound or NoCapacity; then nothing is taken.
    """
    with reservations_lent_to(state, guest) if guest else nullcontext():
        claim = try_place(state, checked, owner=owner, instead_of=instead_of)
    if claim is not None:
        return claim
    spec, action = checked.spec, checked.action
    quotas.check(state, owner, spec.allocation, checked.size, action, instead_of=instead_of)
    first_error: PodwrightError | None = None
    for cluster in state.inventory.candidates(spec.cluster, spec.allocation, action):
        refusal = cluster.index.plan(checked.at(cluster.layout).request)
        assert isinstance(refusal, Refusal)
        obstacles = partial(in_the_way, state, cluster, spec, refusal, owner)
        error = no_placement_error(refusal, cluster, spec, action, obstacles)
        if first_error is None or isinstance(error, NoCapacity):
            first_error = error
    assert first_error is not None
    raise first_error


def try_place(
    state: ControllerState,
    checked: CheckedSpec,
    *,
    owner: str,
    instead_of: PartitionRecord | None = None,
) -> DeviceClaim | None:
    """The same; None where nothing is free, without reasons.

    Raises NoCapacity for a quota, InvalidRequest, NotFound.
    """
    spec, action = checked.spec, checked.action
    clusters = state.inventory.candidates(spec.cluster, spec.allocation, action)
    if spec.devices and not spec.cluster and len(clusters) > 1:
        raise InvalidRequest(
            "devices are named, but not their cluster",
            operation=action,
            would_work="name one of the clusters "
            f"{', '.join(candidate.layout.name for candidate in clusters)}",
        )
    for cluster in clusters:
        request, hosts = checked.at(cluster.layout)
        if hosts:
            hosts = _hosts_of_pool(state, hosts, cluster, owner, action)
        placement = cluster.index.find(request)
        if placement is not None:
            if cluster.closed:
                guard(cluster, spec, placement)
            routing = checked.routing(cluster.layout, placement.blocks)
            cluster.index.take(placement)
            admission = _admit(state, cluster, placement, owner, action, instead_of)
            return DeviceClaim(checked, cluster, placement, admission, routing, hosts)
    return None


def _hosts_of_pool(
    state: ControllerState,
    hosts: tuple[str, ...],
    cluster: IndexedCluster,
    owner: str,
    action: str,
) -> tuple[str, ...]:
    """The hosts of a pool's devices, by the fabric's names.

    Raises InvalidRequest for a host that the fabric does not know, and WrongState for one that has
    devices of another user: nothing on a host keeps the devices of a pool apart.
    """
    hosts = known_hosts(hosts, state.hardware.pool_hosts, cluster.layout.name, action)
    for partition_record in state.partitions.on_hosts():
        if partition_record.owner != owner and (
            shared_hosts := set(partition_record.hosts).intersection(hosts)
        ):
            raise WrongState(
                f"host {min(shared_hosts)} has devices of another user, and nothing keeps them "
                "apart there",
                operation=action,
                would_work="choose another host, or wait until it has none",
            )
    return hosts


def _admit(
    state: ControllerState,
    cluster: IndexedCluster,
    placement: Placement,
    owner: str,
    action: str,
    instead_of: PartitionRecord | None,
) -> Admission:
    """The admission of devices that were just taken in the index, if their owner's quotas allow it.

    Whatever takes devices for a partition ends here. Raises NoCapacity; then they are free again.
    """
    try:
        return quotas.admit_devices(
            state, owner, placement.allocation, placement.size, action, instead_of=instead_of
        )
    except NoCapacity:
        cluster.index.release(placement)
        for reservation in state.reservations.values():
            reservation.reserve_free_blocks()
        raise


def undo_claim(state: ControllerState, claim: DeviceClaim) -> None:
    """Undo a claim that nobody has noticed: no waiter is told that devices are free."""
    state.admitted.discard(claim.admitted)
    claim.cluster.index.release(claim.placement)
    for reservation in state.reservations.values():
        reservation.reserve_free_blocks()


def give_back(state: ControllerState, claim: DeviceClaim | None) -> None:
    """Free claimed devices that were not used, and tell the queue. None: does nothing."""
    if claim is not None:
        state.admitted.discard(claim.admitted)
        claim.cluster.index.release(claim.placement)
        state.freed(claim.cluster, claim.placement.blocks, "")
