"""Create, get, reset and remove partitions: who may, where it goes, and the steps in order."""

from __future__ import annotations

from functools import partial

import msgspec

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.requests import _quotas as quotas
from podwright.controller.requests._allocation_access import guard
from podwright.controller.requests._explain import in_the_way
from podwright.controller.requests._pool_hosts import known_hosts
from podwright.controller.requests._refusals import failed, held_by_others_error, no_placement_error
from podwright.controller.requests._reserve_devices import reservations_lent_to
from podwright.controller.requests._spec import CheckedSpec, check_name
from podwright.controller.state._caller import (
    Caller,
    check_change,
    check_creator,
    check_job,
)
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import CREATING
from podwright.controller.state._records import LeaseRecord, PartitionRecord
from podwright.controller.state._reservation import DeviceClaim
from podwright.errors import (
    AlreadyExists,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
    WrongState,
)
from podwright.ground.plural import span
from podwright.placement import Placement, Refusal
from podwright.wire import ResetRequest, Routing

MAX_DURATION_SECONDS = 366 * 86400.0  #: seconds


def place(
    state: ControllerState,
    checked_spec: CheckedSpec,
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
    with reservations_lent_to(state, guest):
        claim = try_place(state, checked_spec, owner=owner, instead_of=instead_of)
    if claim is not None:
        return claim
    partition_spec = checked_spec.spec
    quotas.check(
        state,
        owner,
        partition_spec.allocation,
        checked_spec.size,
        checked_spec.action,
        instead_of=instead_of,
    )
    first_error: PodwrightError | None = None
    for cluster in state.inventory.candidates(
        partition_spec.cluster, partition_spec.allocation, checked_spec.action
    ):
        refusal = cluster.index.plan(checked_spec.at(cluster.layout))
        assert isinstance(refusal, Refusal)
        obstacles = partial(in_the_way, state, cluster, partition_spec, refusal, owner)
        error = no_placement_error(refusal, cluster, partition_spec, checked_spec.action, obstacles)
        if first_error is None or isinstance(error, NoCapacity):
            first_error = error
    assert first_error is not None
    raise first_error


def try_place(
    state: ControllerState,
    checked_spec: CheckedSpec,
    *,
    owner: str,
    instead_of: PartitionRecord | None = None,
) -> DeviceClaim | None:
    """The same; None where nothing is free, without reasons.

    Raises NoCapacity for a quota, InvalidRequest, NotFound.
    """
    partition_spec = checked_spec.spec
    clusters = state.inventory.candidates(
        partition_spec.cluster, partition_spec.allocation, checked_spec.action
    )
    if partition_spec.devices and not partition_spec.cluster and len(clusters) > 1:
        raise InvalidRequest(
            "devices are named, but not their cluster",
            operation=checked_spec.action,
            would_work="name one of the clusters "
            f"{', '.join(candidate.layout.name for candidate in clusters)}",
        )
    for cluster in clusters:
        placement_request = checked_spec.at(cluster.layout)
        pool_hosts = _hosts_of_pool(state, checked_spec, cluster, owner)
        placement = cluster.index.find(placement_request)
        if placement is not None:
            if cluster.closed:
                guard(cluster, partition_spec, placement)
            routing = checked_spec.routing(cluster.layout, placement.blocks)
            cluster.index.take(placement)
            claim = _admit_claim(
                state,
                cluster,
                placement,
                routing,
                owner,
                checked_spec.action,
                instead_of=instead_of,
            )
            return claim._replace(hosts=pool_hosts)
    return None


def _hosts_of_pool(
    state: ControllerState, checked_spec: CheckedSpec, cluster: IndexedCluster, owner: str
) -> tuple[str, ...]:
    """The hosts of a pool's devices, by the fabric's names; none for other clusters.

    Raises InvalidRequest for a host that the fabric does not know, and WrongState for one that has
    devices of another user: nothing on a host keeps the devices of a pool apart.
    """
    hosts = checked_spec.hosts(cluster.layout)
    if not hosts:
        return ()
    hosts = known_hosts(hosts, state.hardware.pool_hosts, cluster.layout.name, checked_spec.action)
    for partition_record in state.partitions.on_hosts():
        if partition_record.owner != owner and (
            shared_hosts := set(partition_record.hosts).intersection(hosts)
        ):
            raise WrongState(
                f"host {min(shared_hosts)} has devices of another user, and nothing keeps them "
                "apart there",
                operation=checked_spec.action,
                would_work="choose another host, or wait until it has none",
            )
    return hosts


def _admit_claim(
    state: ControllerState,
    cluster: IndexedCluster,
    placement: Placement,
    routing: Routing,
    owner: str,
    action: str,
    *,
    instead_of: PartitionRecord | None,
) -> DeviceClaim:
    """Devices that were just taken in the index, if their owner's quotas allow it.

    Whatever takes devices for a partition ends here. Raises NoCapacity; then they are free again.
    """
    try:
        admission = quotas.admit_devices(
            state, owner, placement.allocation, placement.size, action, instead_of=instead_of
        )
    except NoCapacity:
        cluster.index.release(placement)
        for reservation in state.reservations.values():
            reservation.reserve_free_blocks()
        raise
    return DeviceClaim(cluster, placement, admission, routing)


def make_record(
    state: ControllerState,
    caller: Caller,
    checked_spec: CheckedSpec,
    claim: DeviceClaim,
    *,
    transient: bool = False,
    owner_record: PartitionRecord | None = None,
    creator: str = "",
    job: str = "",
    guest: str = "",
    duration: float = 0.0,
) -> PartitionRecord:
    """The record of a partition that is CREATING. owner_record: keep the owner of this one.

    creator: who asked in the caller's name, for which job and as which scheduler.
    """
    spec = checked_spec.spec
    cluster, placement = claim.cluster, claim.placement
    return PartitionRecord(
        name=spec.name,
        cluster=cluster.layout.name,
        allocation=placement.allocation,
        size=placement.size,
        num_gcds=len(placement.gcds),
        num_replicas=spec.num_replicas or len(placement.gcds),
        num_ilds=len({block.domain for block in placement.blocks}),
        routing=claim.routing,
        gw_routing=spec.gw_routing,
        sync_type=checked_spec.sync_type,
        blocks=placement.blocks,
        gcds=placement.gcds,
        ready=CREATING[0],
        operation=CREATING[1],
        owner=owner_record.owner if owner_record else caller.name,
        owner_uid=owner_record.owner_uid
        if owner_record
        else -1
        if caller.uid is None
        else caller.uid,
        creator=creator or caller.name,
        job=job,
        epoch=state.epochs.next(),
        created_at=state.wall(),
        placed_at=state.now(),
        reconfigurable=spec.reconfigurable,
        open_gcds=not (spec.num_gcds or spec.reconfigurable),
        open_replicas=not (spec.num_replicas or spec.reconfigurable),
        auto_reset=spec.auto_reset,
        relocatable=spec.relocatable,
        movable=spec.movable,
        profile=spec.profile,
        transient=transient,
        until=state.now() + duration if duration else 0.0,
        hosts=claim.hosts,
        guest=guest,
    )


async def begin_create(
    state: ControllerState,
    caller: Caller,
    checked_spec: CheckedSpec,
    *,
    lease_for: LeaseRecord | None = None,
    transient: bool = False,
    creator: str = "",
    job: str = "",
    guest: str = "",
    claim: DeviceClaim | None = None,
    duration: float = 0.0,
) -> PartitionEntry:
    """Decide and write down a new partition; its lock is held on return.

    lease_for: a lease on all of it that begins with it; partition, epoch and count are filled
    in here. creator, job, guest: who asks in the caller's name, for which job, and as which
    scheduler (`guest_key`). claim: its devices, if they are claimed already. duration: seconds
    for which it is needed; 0: unknown.
    """
    try:
        _check_create(state, caller, checked_spec, duration)
        claim = claim or place(state, checked_spec, owner=caller.name, guest=guest)
    except BaseException:
        give_back(state, claim)
        raise
    partition_name = checked_spec.spec.name
    partition_entry = PartitionEntry(partition_name, claim.cluster, makers=(caller.name, creator))
    state.partitions.add(partition_entry)
    try:
        await partition_entry.lock.acquire()  # nobody else knows it yet: this does not wait
        partition_record = make_record(
            state,
            caller,
            checked_spec,
            claim,
            transient=transient,
            creator=creator,
            job=job,
            guest=guest,
            duration=duration,
        )
        lease = whole_lease(lease_for, partition_record) if lease_for else None
        await steps.begin_create(state, partition_entry, partition_record, lease)
    except BaseException:
        state.drop_entry(partition_entry)
        partition_entry.lock.release()
        give_back(state, claim)
        raise
    state.admitted.discard(claim.admitted)  # its record counts now
    return partition_entry


def _check_create(
    state: ControllerState, caller: Caller, checked_spec: CheckedSpec, duration: float
) -> None:
    """Raise for a creation that is refused however many devices are free."""
    partition_name, action = checked_spec.spec.name, checked_spec.action
    check_name(partition_name)
    check_creator(caller, action)
    check_duration(duration, action)
    if partition_name in state.partitions:
        raise AlreadyExists(
            f"there is a partition {partition_name} already",
            operation=action,
            would_work="choose another name, or remove it first",
            partition=partition_name,
        )


def check_duration(duration: float, action: str) -> None:
    """Raise InvalidRequest for a duration that is not possible."""
    if not 0 <= duration <= MAX_DURATION_SECONDS:
        raise InvalidRequest(
            f"nothing can be needed for {span(duration)}",
            operation=action,
            would_work=f"say how long, up to {MAX_DURATION_SECONDS:.0f} s, or leave it out",
        )


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


def whole_lease(lease_draft: LeaseRecord, partition_record: PartitionRecord) -> LeaseRecord:
    """The draft as a lease on all of a partition, with the partition's epoch."""
    return msgspec.structs.replace(
        lease_draft,
        id=f"l{partition_record.epoch:x}",
        partition=partition_record.name,
        epoch=partition_record.epoch,
        first=0,
        count=partition_record.size,
    )


async def finish_create(state: ControllerState, partition_entry: PartitionEntry) -> None:
    """Configure the hardware of a new partition and release its lock."""
    try:
        await steps.finish_create(state, partition_entry)
    finally:
        partition_entry.lock.release()


async def begin_reset(
    state: ControllerState, caller: Caller, request: ResetRequest
) -> PartitionEntry:
    """Check that a reset is allowed; the partition's lock is held on return."""
    action = f"reset partition {request.name}"
    entry = await state.lock(request.name, action, caller)
    try:
        _check_may_change(state, caller, entry, action, request.force)
    except BaseException:
        entry.lock.release()
        raise
    return entry


async def finish_reset(
    state: ControllerState, caller: Caller, partition_entry: PartitionEntry, *, relocatable: bool
) -> None:
    """Reset a partition, ending leases on it, and let go of its lock. Raises Held for fences.

    relocatable: from now on (V-IPU 1.18 protocol: false keeps what creation said).
    """
    try:
        partition = bool(partition_entry.leases)
        await fences.end_all_leases(
            state, caller, partition_entry, f"reset partition {partition_entry.name}"
        )
        await steps.reset(state, partition_entry, keep=partition, relocatable=relocatable)
    finally:
        partition_entry.lock.release()


async def begin_remove(
    state: ControllerState, caller: Caller, partition_name: str, *, force: bool, job: str = ""
) -> PartitionEntry:
    """Check that a removal may be; the partition's lock is held on return. job: see
    RemoveRequest. Raises NotFound where it is another's, Denied, Held."""
    action = f"remove partition {partition_name}"
    entry = await state.lock(partition_name, action, caller)
    try:
        if job and entry.known.job != job:
            raise NotFound(f"partition {partition_name} is not for job {job}", operation=action)
        _check_may_change(state, caller, entry, action, force)
        check_job(caller, entry.known.job, action)
    except BaseException:
        entry.lock.release()
        raise
    return entry


async def finish_remove(
    state: ControllerState, caller: Caller, partition_entry: PartitionEntry, *, force: bool
) -> None:
    """Remove a partition and let go of its lock. Raises WrongState when machines do not answer,
    Held while what a lease left on it is not gone."""
    partition_record = partition_entry.known
    try:
        await fences.end_all_leases(
            state, caller, partition_entry, f"remove partition {partition_entry.name}"
        )
        faults = await steps.remove(state, partition_entry, force=force)
    finally:
        partition_entry.lock.release()
    if faults and not force:
        raise failed(
            partition_record,
            [fault.reason for fault in faults],
            f"remove partition {partition_entry.name}",
            "remove it by force, or repair the machine and try again",
        )


def _check_may_change(
    state: ControllerState,
    caller: Caller,
    partition_entry: PartitionEntry,
    action: str,
    force: bool,
) -> None:
    """Who may reset or remove: owner and administrator; while it is held, only by force.

    A lease is held by a launch, not by a person: its own user, too, has to say `force`.
    """
    record = partition_entry.known
    check_change(caller, record.owner, action, record.creator)
    if partition_entry.leases and not force:
        raise held_by_others_error(
            record,
            list(partition_entry.leases.values()),
            action,
            "wait until it is released, or use force, which ends the lease",
        )
    if partition_entry.fences and not force:
        raise fences.refusal(state, partition_entry, action)
