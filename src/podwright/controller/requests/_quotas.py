"""Quotas: how much a user, an allocation, or a user in an allocation may have at a time.

A quota counts partitions by their owner, whoever created them. What goes beyond is refused as
what is not free is, and can be waited for. Administrators set quotas, and are bound by them too.

A partition counts from the moment its devices are taken: what is about to be written down is
`admitted`, by the one door that all go through who take devices, and leaves it when its record is
durable, or its devices were given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from podwright.controller.state._claimed_devices import Admission
from podwright.controller.state._records import NO_LIMIT, PartitionRecord, QuotaRecord, decode
from podwright.errors import InvalidRequest, NoCapacity
from podwright.store import Change, Delete, Put
from podwright.wire import QuotaInfo

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState

QUOTA: Final = "quota"


def load(records: dict[tuple[str, str], bytes]) -> dict[tuple[str, str], QuotaRecord]:
    """The quotas that are written down."""
    quotas = [
        decode(QuotaRecord, record_bytes)
        for (kind, _), record_bytes in records.items()
        if kind == QUOTA
    ]
    return {quota.key: quota for quota in quotas}


async def put(state: ControllerState, quota_info: QuotaInfo) -> QuotaInfo:
    """Set a quota; without any limit it is gone. Raises InvalidRequest."""
    action = "set quota"
    if not (quota_info.user or quota_info.allocation):
        raise InvalidRequest(
            "the request does not say whose quota it sets",
            operation=action,
            would_work="name a user, an allocation, or both",
        )
    if quota_info.devices < NO_LIMIT or quota_info.partitions < NO_LIMIT:
        raise InvalidRequest(
            "a limit is a number from 0 on",
            operation=action,
            would_work="leave out what has no limit",
        )
    if quota_info.allocation:
        state.inventory.candidates("", quota_info.allocation, action)
    quota = QuotaRecord(
        user=quota_info.user,
        allocation=quota_info.allocation,
        devices=quota_info.devices,
        partitions=quota_info.partitions,
    )
    quota_key = f"{quota.user}/{quota.allocation}"
    unlimited = quota.devices == quota.partitions == NO_LIMIT
    store_change: Change = (
        Delete(QUOTA, quota_key) if unlimited else Put(QUOTA, quota_key, msgspec.json.encode(quota))
    )
    await state.journal.commit([store_change])
    if unlimited:
        state.quotas.pop(quota.key, None)
    else:
        state.quotas[quota.key] = quota
    state.freed(None, (), "")  # who waited for a quota may start
    return show(state, quota)


def check(
    state: ControllerState,
    owner: str,
    allocation: str,
    size: int,
    action: str,
    *,
    instead_of: PartitionRecord | None = None,
) -> None:
    """Raises NoCapacity for a partition that would go beyond a quota. instead_of: what goes."""
    if not state.quotas:
        return
    for quota_key in ((owner, ""), ("", allocation), (owner, allocation)):
        quota = state.quotas.get(quota_key)
        if quota is None:
            continue
        used_devices, used_partitions = _used_counts(state, quota, instead_of)
        for limited_noun, used_count, added_count, limit in (
            ("devices", used_devices, size, quota.devices),
            ("partitions", used_partitions, 1, quota.partitions),
        ):
            if limit != NO_LIMIT and used_count + added_count > limit:
                remaining_count = max(0, limit - used_count)
                raise NoCapacity(
                    f"{_quota_subject(quota)} may have {limit} {limited_noun}, and has "
                    f"{used_count}",
                    operation=action,
                    would_work=f"ask for {remaining_count} or fewer, or remove a partition first"
                    if remaining_count and limited_noun == "devices"
                    else "remove a partition first, or ask an administrator for a larger quota",
                    quota=limited_noun,
                    user=quota.user,
                    allocation=quota.allocation,
                    limit=limit,
                    used=used_count,
                )


def admit_devices(
    state: ControllerState,
    owner: str,
    allocation: str,
    size: int,
    action: str,
    *,
    instead_of: PartitionRecord | None = None,
) -> Admission:
    """Let somebody take devices, which count from here on. Raises NoCapacity, as `check` does."""
    check(state, owner, allocation, size, action, instead_of=instead_of)
    admission = Admission(owner, allocation, size, instead_of.name if instead_of else "")
    state.admitted.add(admission)
    return admission


def show(state: ControllerState, quota: QuotaRecord) -> QuotaInfo:
    """A quota and what is used of it."""
    devices, partitions = _used_counts(state, quota, None)
    return QuotaInfo(
        user=quota.user,
        allocation=quota.allocation,
        devices=quota.devices,
        partitions=quota.partitions,
        used_devices=devices,
        used_partitions=partitions,
    )


def _used_counts(
    state: ControllerState, quota: QuotaRecord, replaced_record: PartitionRecord | None
) -> tuple[int, int]:
    """Devices and partitions, of what is recorded and what is admitted."""

    used_devices, used_partitions = state.partitions.usage(quota.user, quota.allocation)

    def counted_size(name: str) -> int:
        """What a partition counts of the quota; 0: it does not."""
        entry = state.partitions.get(name)
        record = entry.record if entry is not None else None
        return record.size if record is not None and counts(record) else 0

    def counts(record: PartitionRecord | Admission) -> bool:
        return quota.user in ("", record.owner) and quota.allocation in ("", record.allocation)

    # What replaces a partition counts in its place, with the larger of both sizes.
    replaced_sizes: dict[str, int] = {}
    for admission in filter(counts, state.admitted):
        if replaced_name := admission.instead_of:
            replaced_sizes[replaced_name] = max(
                admission.size, replaced_sizes.get(replaced_name, 0)
            )
        else:
            used_devices += admission.size
            used_partitions += 1
    for replaced_name, size in replaced_sizes.items():
        present_size = counted_size(replaced_name)
        used_devices += max(0, size - present_size)
        used_partitions += not present_size
    if replaced_record is not None:
        counted = max(
            counted_size(replaced_record.name), replaced_sizes.get(replaced_record.name, 0)
        )
        used_devices -= counted
        used_partitions -= bool(counted)
    return used_devices, used_partitions


def _quota_subject(quota: QuotaRecord) -> str:
    if quota.user and quota.allocation:
        return f"user {quota.user} in allocation {quota.allocation}"
    return f"user {quota.user}" if quota.user else f"allocation {quota.allocation}"
