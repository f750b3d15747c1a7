"""Which partition is for which job instance, and the book of all that jobs hold.

A partition is owned by cluster, namespace, name and uid of its job: they stand in it, in the words
that the server keeps with it. So an operator that knows nothing finds all of them again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from podwright.guests import Book, Holding
from podwright.kubernetes._ipu_job import JobKey
from podwright.wire import PartitionInfo

_NAME: Final = re.compile(r"p-.*-\d+-[0-9a-f]{8}")
_WORDS: Final = re.compile(
    r"([^/\s,]+)/([^/\s,]+), kubernetes ([^,\s]+), uid ([^,\s]+), instance (\d+)"
)
_LONGEST: Final = 64  # characters of a partition's name, by the server


class Owner(NamedTuple):
    """Whose a partition is. cluster: the Kubernetes cluster, as its operator is told."""

    cluster: str
    job: JobKey
    instance: int

    @property
    def words(self) -> str:
        """As the partition carries it."""
        key = self.job
        return (
            f"{key.namespace}/{key.name}, kubernetes {self.cluster}, uid {key.uid}, "
            f"instance {self.instance}"
        )

    @property
    def partition(self) -> str:
        """Its name: as Graphcore's operator calls it, and what is unique to this job."""
        words = f"{self.cluster}/{self.job.uid}".encode()
        end = f"-{self.instance}-{hashlib.sha256(words).hexdigest()[:8]}"
        return f"p-{self.job.name}-{self.job.namespace}"[: _LONGEST - len(end)] + end


def owner_of(words: str) -> Owner | None:
    """Whose a partition is that carries these words; None: no job's."""
    found = _WORDS.fullmatch(words)
    if found is None:
        return None
    return Owner(found[3], JobKey(found[1], found[2], found[4]), int(found[5]))


@dataclass(slots=True, kw_only=True)
class Claim(Holding[str]):
    """What an instance of a job holds. Its key is its partition's name."""

    owner: Owner

    @property
    def name(self) -> str:
        """Its partition."""
        return self.job

    @property
    def words(self) -> str:
        """Whose it is, as the partition carries it."""
        return self.owner.words


class ClaimBook(Book[str, Claim]):
    """All that jobs of one Kubernetes cluster hold in one V-IPU cluster."""

    def __init__(self, kubernetes: str, cluster: str, allocation: str = "") -> None:
        super().__init__(cluster, allocation)
        self.kubernetes = kubernetes

    def take(self, owner: Owner, order: int, *, whole: str) -> Claim | None:
        """A block for an instance; None where none of that size is free. whole: its job."""
        start = self.find(order, whole)
        if start is None:
            return None
        return self.add(Claim(job=owner.partition, start=start, order=order, owner=owner))

    def of_job(self, uid: str) -> dict[int, Claim]:
        """What a job holds, by instance."""
        return {
            one.owner.instance: one for one in self.holdings.values() if one.owner.job.uid == uid
        }

    def job_of(self, partition: str) -> str | None:
        """The key that a partition's name says; None for others."""
        return partition if _NAME.fullmatch(partition) else None

    def adopted(self, info: PartitionInfo, start: int, order: int) -> Claim | None:
        """What a partition of a life before this one is; None: it is no job's of this cluster."""
        owner = owner_of(info.job)
        if owner is None or owner.cluster != self.kubernetes or owner.partition != info.name:
            return None
        return Claim(job=info.name, start=start, order=order, made=True, owner=owner)
