"""What a guest must say about its jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeVar

from podwright.guests.shared._block_holdings import Holding

K = TypeVar("K")
#: What a guest's own list has of one job: whatever it needs to answer `is_over`.
J = TypeVar("J")
H_contra = TypeVar("H_contra", bound=Holding[Any], contravariant=True)


class Guest(Protocol[K, J, H_contra]):
    """A scheduler's side of the sweep. A job is named by its key: the same for one job always,
    and never given to two jobs that both hold devices."""

    async def jobs(self) -> Mapping[K, J]:
        """All jobs that the scheduler remembers. Raises wire.Unavailable where it does not answer;
        then nothing is touched."""

    def in_progress(self) -> Collection[K]:
        """Jobs whose start is under way now: their own task decides about them."""

    def is_over(self, holding: H_contra, jobs: Mapping[K, J], in_progress: Collection[K]) -> bool:
        """Is it sure that no job that lives has this? Where in doubt, no."""

    async def give_back(self, book: Any, holding: H_contra) -> None:
        """The partition goes, then its block is free. Raises wire.PodwrightError; then it is
        not."""
