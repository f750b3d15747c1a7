"""Moving a partition to healthy devices when its own have failed (V-IPU 1.18 protocol: on an
error or a failing reset, where its creator allowed it).

One commit says that the partition is being created on its new devices and that the old ones are
in quarantine: after a crash at any moment recovery finishes the one and the reset of the other.
Whoever held the partition is told: his lease is over, so his next renewal is refused. The reset
cuts him off; where a machine could not do that to one who does not want it, nothing is moved.
"""

from __future__ import annotations

from podwright.controller import _steps as steps
from podwright.controller._core import AUTO_RESETS, Core, Entry
from podwright.controller._cutoff import would_cut_off
from podwright.controller._journal import unless_written
from podwright.controller._leases import ending
from podwright.controller._move_planner import shape_of
from podwright.controller._move_step import left_behind, quarantine
from podwright.controller._records import drop_lease, put, put_quarantine
from podwright.controller._states import BROKEN, CREATING, move, state_of

AGAIN = 5.0  #: seconds until room is looked for again


def may_move(core: Core, entry: Entry, now: float) -> bool:
    """Whether it is time to move a partition: resetting it where it is does not help."""
    record = entry.record
    return (
        record is not None
        and record.relocatable
        and not record.transient
        and entry.site is not None
        and not entry.fences
        and all(would_cut_off(core, entry, lease) for lease in entry.leases.values())
        and state_of(record) == BROKEN
        and now >= entry.retry_at
        and (record.auto_resets >= AUTO_RESETS or not core.down.isdisjoint(entry.machines))
    )


async def relocate(core: Core, entry: Entry) -> bool:
    """Move a partition whose lock is held. Returns whether there was room."""
    record, site = entry.known, entry.site
    assert site is not None
    found = site.index.find(shape_of(record))
    if found is None:
        entry.retry_at = core.now() + AGAIN
        return False
    site.index.take(found)
    left = left_behind(site, record, record.blocks, record.epoch)
    ended = list(entry.leases.values())
    moved = move(
        record,
        CREATING,
        blocks=found.blocks,
        gcds=found.gcds,
        epoch=core.next_epoch(),
        errors=(),
        dirty="",
        auto_resets=0,
    )
    with ending(ended), unless_written(lambda: site.index.release(found)):
        await core.journal.commit(
            [put(moved), *map(put_quarantine, left), *(drop_lease(x.record.id) for x in ended)]
        )
    site.index.release(record.placement)
    quarantine(core, site, left)
    core.set(entry, moved)
    core.drop_leases(entry, ended)
    why = "; ".join(record.errors) or "its devices failed"
    core.tell("Relocate", record.name, record.owner, why)
    await steps.finish_create(core, entry)
    return True
