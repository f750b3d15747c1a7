"""The weights of the common queue that an administrator has set, in the store.

A stored weight comes before the one of `vipu-server --share`. An older server leaves these records
alone, and serves with the weights of its options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from podwright.controller.queue._guest_first_jobs import GuestQueue
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import Record, decode
from podwright.store import Change, Delete, Put

SHARE_KIND: Final = "share"


class ShareRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The weight of a guest, by its name (`guest_name`)."""

    guest: str
    weight: float


def load(records: Mapping[tuple[str, str], bytes]) -> dict[str, float]:
    """The stored weights, by the names of guests."""
    share_records = [
        decode(ShareRecord, record_bytes)
        for (kind, _), record_bytes in records.items()
        if kind == SHARE_KIND
    ]
    return {record.guest: record.weight for record in share_records}


async def store_weight(
    state: ControllerState, queue: GuestQueue, guest: str, weight: float | None
) -> None:
    """Store the weight of a guest, and use it from now on. None: forget the stored one."""
    change: Change = Delete(SHARE_KIND, guest)
    if weight is not None:
        change = Put(
            SHARE_KIND, guest, msgspec.json.encode(ShareRecord(guest=guest, weight=weight))
        )
    await state.journal.commit([change])
    queue.set_weight(guest, weight)
