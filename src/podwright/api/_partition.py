"""A partition that this program holds.

A process of its own (`_lease_renewal`) renews the lease and gives it back. So the lease lives
however long this program computes or is stopped, and ends however this program ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from podwright.api._end_with_parent import hold
from podwright.api._server_variables import with_variables
from podwright.errors import Fenced, PodwrightError, error_from_json
from podwright.ground.plural import counted

if TYPE_CHECKING:
    from podwright.client import Client
    from podwright.wire import AcquireReply, PartitionInfo

#: Environment variables for programs in the partition: its name, and the lease that contains
#: theirs.
PARTITION_VARIABLE = "IPUOF_VIPU_API_PARTITION_ID"
LEASE_VARIABLE = "PODWRIGHT_LEASE"
#: The program of the keeper's process, which starts before it knows its lease.
KEEPER_COMMAND = (sys.executable, "-P", "-m", "podwright.api._lease_renewal")


class Cancellable(Protocol):
    """Something that runs in a partition, such as a `Job`."""

    def cancel(self) -> None:
        """End the job."""
        ...


class PodOfPartition(Protocol):
    """The part of `Pod` that a partition uses."""

    def variables(self) -> dict[str, str]:
        """Return the variables by which programs call the pod's server; empty: not to be set."""
        ...

    def get(self, name: str) -> PartitionInfo:
        """Return a partition as it stands now."""
        ...

    def client(self) -> AbstractContextManager[Client]:
        """Return the connection, which serves one call at a time."""
        ...


class Partition:
    """An isolated set of devices, held by this program. `Pod.partition` makes it.

    At the end of a `with` block the partition is given back, and removed if it was created for this
    program. Launches that still run in it are ended first.

    >>> with podwright.connect() as pod, pod.partition(4, name="p1") as held:
    ...     held.name
    'p1'
    """

    def __init__(self, pod: PodOfPartition, acquire_reply: AcquireReply) -> None:
        self._pod, self._lease = pod, acquire_reply.lease
        self._jobs: weakref.WeakSet[Cancellable] = weakref.WeakSet()
        self._over = False
        self._lost: PodwrightError | None = None
        #: The partition as it stood when it was acquired.
        self.info: PartitionInfo = acquire_reply.partition
        self.created = acquire_reply.created
        self._keeper = subprocess.Popen(
            KEEPER_COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with pod.client() as client:
            server = client.server.plain()
        lease_fields = {
            "lease": self._lease.id,
            "epoch": self._lease.epoch,
            "partition": self.name,
            "server": server,
        }
        assert self._keeper.stdin
        self._keeper.stdin.write(json.dumps(lease_fields).encode() + b"\n")
        self._keeper.stdin.flush()
        hold(self._keeper.stdin)

    @property
    def name(self) -> str:
        """The name of the partition."""
        return self.info.name

    @property
    def size(self) -> int:
        """The number of devices."""
        return self.info.size

    @property
    def simulated(self) -> bool:
        """Whether the devices exist only in software."""
        return self.info.simulated

    @property
    def held(self) -> bool:
        """Whether this program still holds the partition.

        An administrator may have ended the lease.
        """
        return not self._over and self._keeper.poll() is None

    def refresh(self) -> PartitionInfo:
        """Return the partition as it stands now. Raises `NotFound` if it is gone."""
        self.info = self._pod.get(self.name)
        return self.info

    def environment(self) -> dict[str, str]:
        """Return the environment in which other programs, such as poprun, run in this partition."""
        return with_variables(os.environ, self.variables())

    def variables(self) -> dict[str, str]:
        """Return the variables of programs in this partition.

        An empty value means that the variable must not be set.
        """
        partition_variables = {PARTITION_VARIABLE: self.name, LEASE_VARIABLE: self._lease.id}
        return {**self._pod.variables(), **partition_variables}

    def close(self) -> None:
        """Give the partition back, and remove it if it was created for this program.

        Jobs that still run in it are cancelled first. The keeper's process gives the lease back
        when its input closes. If that process was killed, this call gives the lease back itself. A
        second call does nothing. Raises `Fenced` if the lease was over before.
        """
        if self._over:
            return
        self._over = True
        for job in list(self._jobs):
            job.cancel()
        assert self._keeper.stdin
        keeper_output, _ = self._keeper.communicate()
        report_lines = keeper_output.splitlines()
        if report_lines:
            refusal_fields = json.loads(report_lines[-1])
            if refusal_fields:
                raise error_from_json(refusal_fields)
        elif self._keeper.returncode:
            with self._pod.client() as client:  # something has ended the keeper's process
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

    def _repr_html_(self) -> str:
        from podwright.api._listing import html_card

        state = "held" if self.held else "given back"
        rows = (("size", self.size), ("GCDs", self.info.num_gcds), ("state", state))
        return html_card(f"partition {self.name}", rows)

    def __repr__(self) -> str:
        state = "held" if self.held else "given back"
        return f"<podwright.Partition {self.name} of {counted(self.size, 'device')}, {state}>"
