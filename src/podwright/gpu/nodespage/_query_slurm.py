"""Asks Slurm for its nodes and jobs, and explain-request for the reason why a job waits.

Slurm is asked every five seconds while a page is open, and never otherwise. An answer of
explain-request is cached, because it is the same for the same options on the same nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from podwright.errors import PodwrightError, Unavailable
from podwright.gpu import requests
from podwright.gpu.nodespage import _nodes_page_data
from podwright.slurm.reader import (
    SHOW_JOBS,
    SHOW_NODES,
    JobRecord,
    SlurmConfig,
    read_jobs,
    read_nodes,
    release_note,
)
from podwright.slurm.site.blocking_commands import Ask
from podwright.slurm.site.commands import Slurm

CACHE_LIFETIME_S: Final = 60.0  #: seconds for which the site is taken to be as it was
MAX_EXPLAINED_JOBS: Final = 50  #: waiting jobs, the first in the queue
MAX_SHOWN_WAITING_JOBS: Final = 1000  #: that are shown


class Looker:
    """Reads the topics of the page. slurm: runs Slurm's commands. ask: the same for
    explain-request; it may block. clock: monotonic seconds."""

    def __init__(
        self, slurm: Slurm, ask: Ask, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slurm, self._ask, self._clock = slurm, ask, clock
        self._site: requests.SlurmCluster | None = None
        self._version: Any = None
        self._read = -CACHE_LIFETIME_S
        self._hidden: frozenset[str] = frozenset()
        self._note = ""
        self._explanations: dict[tuple[str, ...], str] = {}

    async def topics(self) -> dict[str, dict[str, object]]:
        """The topics of the page. Raises wire.Unavailable where Slurm does not answer."""
        if self._clock() >= self._read + CACHE_LIFETIME_S:
            await self._read_site()
        nodes = _nodes_page_data.nodes(read_nodes(await self._scontrol_output(SHOW_NODES)))
        job_records = read_jobs(await self._scontrol_output(SHOW_JOBS))
        running_jobs, waiting_jobs = (
            _nodes_page_data.running_jobs(job_records),
            _nodes_page_data.waiting_jobs(job_records),
        )
        _nodes_page_data.place_jobs(nodes, running_jobs)
        if "nodes" in self._hidden:
            nodes = {}
        if "jobs" in self._hidden or "all" in self._hidden:
            for node in nodes.values():
                node["gpus"] = [[gpu_type, "?" if job else ""] for gpu_type, job in node["gpus"]]
            running_jobs, waiting_jobs = {}, []
        jobs: dict[str, object] = {
            job_number: {
                field_name: field_value
                for field_name, field_value in job.items()
                if field_name != "on"
            }
            for job_number, job in running_jobs.items()
        }
        return {
            "nodes": dict(nodes),
            "jobs": jobs,
            "queue": await self._queue_rows(waiting_jobs[:MAX_SHOWN_WAITING_JOBS]),
        }

    async def _queue_rows(self, waiting_jobs: Sequence[JobRecord]) -> dict[str, object]:
        return {
            str(job.number): await self._waiting_job_row(queue_place, job)
            for queue_place, job in enumerate(waiting_jobs, 1)
        }

    async def _waiting_job_row(self, queue_place: int, job: JobRecord) -> dict[str, object]:
        request_options = _nodes_page_data.readable(lambda: _nodes_page_data.options_of(job))
        options_known = isinstance(request_options, list)
        return {
            "place": queue_place,
            "user": _nodes_page_data.readable(lambda: job.user.name),
            "partition": _nodes_page_data.readable(lambda: job.partition),
            "asked": " ".join(request_options) if options_known else request_options,
            "reason": _nodes_page_data.readable(lambda: job.reason),
            "why": await self._cached_explanation(tuple(request_options))
            if options_known and queue_place <= MAX_EXPLAINED_JOBS
            else "",
            "priority": _nodes_page_data.readable(lambda: job.priority),
            "since": _nodes_page_data.readable(lambda: job.submitted),
            "starts": _nodes_page_data.readable(lambda: job.start),
        }

    async def _cached_explanation(self, request_options: tuple[str, ...]) -> str:
        """Return explain-request's words; empty if it has no answer."""
        if self._site is None:
            return ""
        if request_options not in self._explanations:
            self._explanations[request_options] = await asyncio.to_thread(
                self._explained, request_options
            )
        return self._explanations[request_options]

    def _explained(self, request_options: tuple[str, ...]) -> str:
        site = self._site
        if site is None:
            return ""
        try:
            parsed_options, _ = requests.parse_options(list(request_options), "sbatch")
            request = requests.read_request(parsed_options, "sbatch")
            counted_answer = requests.count_request(request, site, self._version).answer
            explanation_text = requests.sentence(request, counted_answer)
            return f"{explanation_text} Note: {self._note}." if self._note else explanation_text
        except PodwrightError as error:
            return error.problem

    async def _read_site(self) -> None:
        site_texts = await asyncio.to_thread(requests.live, self._ask)
        if site_texts is None:
            raise Unavailable("Slurm does not answer", would_work="look whether slurmctld runs")
        site = await asyncio.to_thread(requests.read_site, site_texts)
        self._site = site if site.nodes else None
        config = SlurmConfig(site_texts.config)
        self._version = config.version
        self._hidden = config.hides
        self._note = release_note(self._version)
        self._explanations = {}
        self._read = self._clock()

    async def _scontrol_output(self, arguments: Sequence[str]) -> str:
        reply = await self._slurm.run(*arguments)
        if reply.code:
            raise Unavailable(f"scontrol failed: {reply.text[:200]}")
        return reply.out
