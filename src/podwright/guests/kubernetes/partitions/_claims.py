"""Which partition belongs to which job instance, and the book of all that jobs hold.

The server keeps the owner of a partition with it, as text: cluster, namespace, name and uid of its
job. So an operator without any state finds all of them again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from podwright.guests.kubernetes.job._ipu_job import JobKey
from podwright.guests.shared import Book, Holding
from podwright.wire import PartitionInfo

_PARTITION_NAME_PATTERN: Final = re.compile(r"p-.*-\d+-[0-9a-f]{8}")
_OWNER_PATTERN: Final = re.compile(
    r"([^/\s,]+)/([^/\s,]+), kubernetes ([^,\s]+), uid ([^,\s]+), instance (\d+)"
)
_MAX_NAME_CHARS: Final = 64  # characters; the server's limit for names


class Owner(NamedTuple):
    """The owner of a partition. cluster: the Kubernetes cluster, by the name that its operator was
    given.
    """

    cluster: str
    job: JobKey
    instance: int

    @property
    def words(self) -> str:
        """The text that the partition carries."""
        key = self.job
        return (
            f"{key.namespace}/{key.name}, kubernetes {self.cluster}, uid {key.uid}, "
            f"instance {self.instance}"
        )

    @property
    def partition(self) -> str:
        """The partition's name: the name that Graphcore's operator gives it, and a part that is
        unique to this job.
        """
        identity_bytes = f"{self.cluster}/{self.job.uid}".encode()
        suffix = f"-{self.instance}-{hashlib.sha256(identity_bytes).hexdigest()[:8]}"
        return f"p-{self.job.name}-{self.job.namespace}"[: _MAX_NAME_CHARS - len(suffix)] + suffix


def owner_of(owner_text: str) -> Owner | None:
    """Return the owner in the text that a partition carries, or None if it is not a job's."""
    owner_match = _OWNER_PATTERN.fullmatch(owner_text)
    if owner_match is None:
        return None
    return Owner(
        owner_match[3], JobKey(owner_match[1], owner_match[2], owner_match[4]), int(owner_match[5])
    )


@dataclass(slots=True, kw_only=True)
class Claim(Holding[str]):
    """What an instance of a job holds. Its key is its partition's name."""

    owner: Owner

    @property
    def name(self) -> str:
        """The name of its partition."""
        return self.job

    @property
    def words(self) -> str:
        """Its owner, as the text that the partition carries."""
        return self.owner.words


class ClaimBook(Book[str, Claim]):
    """All that jobs of one Kubernetes cluster hold in one V-IPU cluster."""

    def __init__(self, kubernetes: str, cluster: str, allocation: str = "") -> None:
        super().__init__(cluster, allocation)
        self.kubernetes = kubernetes

    def take(self, owner: Owner, order: int, *, group: str) -> Claim | None:
        """Take a free block for an instance, or return None where no block of that size is free.

        group: the uid of its job.
        """
        block_start = self.find(order, group)
        if block_start is None:
            return None
        return self.add(Claim(job=owner.partition, start=block_start, order=order, owner=owner))

    def of_job(self, job_uid: str) -> dict[int, Claim]:
        """Return what a job holds, by instance."""
        return {
            claim.owner.instance: claim
            for claim in self.holdings.values()
            if claim.owner.job.uid == job_uid
        }

    def job_of(self, partition: str) -> str | None:
        """Return the key in a partition's name, or None for other names."""
        return partition if _PARTITION_NAME_PATTERN.fullmatch(partition) else None

    def adopted(self, info: PartitionInfo, start: int, order: int) -> Claim | None:
        """Return the claim that an existing partition stands for, or None if it is not of a job
        of this cluster.
        """
        owner = owner_of(info.job)
        if owner is None or owner.cluster != self.kubernetes or owner.partition != info.name:
            return None
        return Claim(job=info.name, start=start, order=order, created=True, owner=owner)
