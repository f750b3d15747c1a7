"""What the doors ask: the work that is done here now, or why there is none yet.

Steps may be proven as soon as the server said who holds what, hooks are answered when Slurm said
its part, too. Until then, and where another service is the active one, they are told to ask again.
"""

from __future__ import annotations

from typing import Any

from podwright.errors import InvalidRequest, Unavailable
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._retry_limit import RetryLimit
from podwright.slurm.pods.service._service_standby import Peers, StandbyRole
from podwright.slurm.pods.service._work import Work


class Post:
    """The handlers of the doors. peers: the other services; None: there are none.

    proving, working: what answers steps, and what answers hooks, while there is any.
    """

    def __init__(self, retry_limit: RetryLimit) -> None:
        self.peers: Peers | None = None
        self.proving: Work | None = None
        self.working: Work | None = None
        self._retry_limit = retry_limit

    def leave(self) -> None:
        """Nothing is answered here any more."""
        self.proving = self.working = None

    async def begins(self, job: HookJob) -> str:
        """A job begins. Raises PodwrightError."""
        return await self._on(self.working).begins(job)

    async def ended(self, job: HookJob) -> str:
        """A job has ended. Raises PodwrightError."""
        return await self._on(self.working).ended(job)

    async def failed(self, job: HookJob) -> str:
        """The site's own prolog refused a job; Slurm would start it again and again."""
        self._on(self.working)
        problem = InvalidRequest(job.problem or "the site's prolog failed")
        await self._retry_limit.refusal(job, problem)
        return ""

    async def proves(self, job: HookJob) -> str:
        """A step begins. Raises PodwrightError."""
        return await self._on(self.proving).proves(job)

    def role(self) -> str:
        """What the other services are told."""
        return (self.peers.role if self.peers else StandbyRole.ACTIVE).value

    def state(self) -> dict[str, Any]:
        """What an administrator watches. ready: hooks are answered."""
        if self.working is not None:
            return {"role": self.role(), "ready": True, **self.working.state()}
        active = self.peers.active if self.peers else ""
        return {"role": self.role(), "ready": False, "active": active}

    def _on(self, work: Work | None) -> Work:
        if work is not None:
            return work
        if self.peers and self.peers.role is not StandbyRole.ACTIVE:
            active = self.peers.active
            raise Unavailable(f"stands by{f': active is {active}' if active else ''}")
        raise Unavailable("begins: vipu-server and slurmctld have not answered yet")
