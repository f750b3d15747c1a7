"""Hands each request of hooks and steps to the work that is done here, or says why there is none
yet.

Steps are answered as soon as the server has said who holds what. Hooks are answered when Slurm has
listed its jobs as well. Until then, and where another service is the active one, callers are told
to ask again.
"""

from __future__ import annotations

from typing import Any

from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.hooks._active_standby_roles import Peers, StandbyRole
from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._retry_limit import RetryLimit
from podwright.guests.slurm.service._way_interface import Work


class HookDispatcher:
    """The handlers of requests. peers: the other services; None: there are none.

    proving: answers steps. working: answers hooks. Each is None until it is ready.
    """

    def __init__(self, retry_limit: RetryLimit) -> None:
        self.peers: Peers | None = None
        self.proving: Work | None = None
        self.working: Work | None = None
        self._retry_limit = retry_limit

    def leave(self) -> None:
        """Answer no steps and no hooks from here on."""
        self.proving = self.working = None

    async def begin_job(self, job: HookJob) -> str:
        """Handle the start of a job. Raises PodwrightError."""
        return await self._require_work(self.working).begin_job(job)

    async def end_job(self, job: HookJob) -> str:
        """Handle the end of a job. Raises PodwrightError."""
        return await self._require_work(self.working).end_job(job)

    async def failed(self, job: HookJob) -> str:
        """Count a start that the site's own prolog refused. Without that, Slurm would start the job
        again and again.
        """
        self._require_work(self.working)
        problem = InvalidRequest(job.problem or "the site's prolog failed")
        await self._retry_limit.refusal(job, problem)
        return ""

    async def prove_step(self, job: HookJob) -> str:
        """Check that a step may begin. Raises PodwrightError."""
        return await self._require_work(self.proving).prove_step(job)

    def role(self) -> str:
        """Return the role that the other services are told."""
        return (self.peers.role if self.peers else StandbyRole.ACTIVE).value

    def state(self) -> dict[str, Any]:
        """Return what an administrator watches. `ready` is True once hooks are answered."""
        if self.working is not None:
            return {"role": self.role(), "ready": True, **self.working.state()}
        address = self.peers.active if self.peers else ""
        return {"role": self.role(), "ready": False, "active": address}

    def _require_work(self, site_work: Work | None) -> Work:
        if site_work is not None:
            return site_work
        if self.peers and self.peers.role is not StandbyRole.ACTIVE:
            active = self.peers.active
            raise Unavailable(f"stands by{f': active is {active}' if active else ''}")
        raise Unavailable("begins: vipu-server and slurmctld have not answered yet")
