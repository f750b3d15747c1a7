"""A partition that this program holds.

A process of its own (`_lease_renewal`) renews the lease and gives it back: whatever this program
computes, however long it is stopped, and however it ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from podwright.api._tether import hold
from podwright.errors import Fenced, PodwrightError, error_from_json

if TYPE_CHECKING:
    from podwright.client import Client
    from podwright.wire import AcquireReply, PartitionInfo

#: What programs in it are told of: the partition, and the lease within which theirs are.
PARTITION_VARIABLE = "IPUOF_VIPU_API_PARTITION_ID"
LEASE_VARIABLE = "PODWRIGHT_LEASE"
#: The keeper's program, started before anything else of it is known.
KEEPER = (sys.executable, "-P", "-m", "podwright.api._lease_renewal")


class Cancellable(Protocol):
    """What runs in a partition: a `Job`."""

    def cancel(self) -> None:
        """End it."""
        ...


class PodOfPartition(Protocol):
    """What a partition needs of its `Pod`."""

    def environment(self) -> dict[str, str]:
        """By which programs find the pod's server."""
        ...

    def get(self, name: str) -> PartitionInfo:
        """A partition as it stands now."""
        ...

    def client(self) -> AbstractContextManager[Client]:
        """The connection, for one call at a time."""
        ...


class Partition:
    """An isolated set of devices, held by this program. Made by `Pod.partition`.

    In a `with` block it is given back at its end, and removed if it was created for it; launches
    in it that still run are ended first.
    """

    def __init__(self, pod: PodOfPartition, reply: AcquireReply) -> None:
        self._pod, self._lease = pod, reply.lease
        self._jobs: weakref.WeakSet[Cancellable] = weakref.WeakSet()
        self._over = False
        self._lost: PodwrightError | None = None
        #: As it was when it was acquired.
        self.info: PartitionInfo = reply.partition
        self.created = reply.created
        self._keeper = subprocess.Popen(
            KEEPER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=pod.environment(),
            start_new_session=True,
        )
        line = {"lease": self._lease.id, "epoch": self._lease.epoch, "partition": self.name}
        assert self._keeper.stdin
        self._keeper.stdin.write(json.dumps(line).encode() + b"\n")
        self._keeper.stdin.flush()
        hold(self._keeper.stdin)

    @property
    def name(self) -> str:
        """Its name."""
        return self.info.name

    @property
    def size(self) -> int:
        """How many devices it has."""
        return self.info.size

    @property
    def simulated(self) -> bool:
        """Whether its devices exist only in software."""
        return self.info.simulated

    @property
    def held(self) -> bool:
        """Whether it is still ours. An administrator may have ended the lease."""
        return not self._over and self._keeper.poll() is None

    def refresh(self) -> PartitionInfo:
        """It, as it stands now. Raises `NotFound` if it is gone."""
        self.info = self._pod.get(self.name)
        return self.info

    def environment(self) -> dict[str, str]:
        """The environment in which programs of one's own, poprun say, run in this partition."""
        own = {PARTITION_VARIABLE: self.name, LEASE_VARIABLE: self._lease.id}
        return {**self._pod.environment(), **own}

    def close(self) -> None:
        """Give it back; what was created for it is removed. Again is no error.

        Raises `Fenced` if the lease was over before.
        """
        if self._over:
            return
        self._over = True
        for job in list(self._jobs):
            job.cancel()
        assert self._keeper.stdin
        said, _ = self._keeper.communicate()
        lines = said.splitlines()
        if lines:
            body = json.loads(lines[-1])
            if body:
                raise error_from_json(body)
        elif self._keeper.returncode:
            with self._pod.client() as client:  # somebody ended the keeper
                client.release(self._lease.id, self._lease.epoch)

    def _add(self, job: Cancellable) -> None:
        if self._over:
            raise Fenced(f"partition {self.name} has been given back")
        self._jobs.add(job)

    def __enter__(self) -> Partition:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except PodwrightError:
            if error is None:
                raise

    def __repr__(self) -> str:
        state = "held" if self.held else "given back"
        return f"<podwright.Partition {self.name} of {self.size} devices, {state}>"
