"""Asks Slurm what there is, and explain-request why a job waits.

Slurm is asked every five seconds while a page is open, and never otherwise. What explain-request
says of the same options on the same nodes is remembered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from podwright.errors import PodwrightError, Unavailable
from podwright.slurm.gpus import requests
from podwright.slurm.gpus.nodespage import _nodes
from podwright.slurm.site.ask import Ask
from podwright.slurm.site.commands import Slurm
from podwright.slurm.site.releases import read_version

SITE: Final = 60.0  #: seconds for which the site is taken to be as it was
EXPLAINED: Final = 50  #: waiting jobs, the first in line
QUEUE: Final = 1000  #: that are shown
_UNKNOWN: Final = ("Unknown", "N/A", "None", "(null)", "")


class Looker:
    """slurm: its commands. ask: the same, for what explain-request reads; it may block.

    clock: seconds, never backwards.
    """

    def __init__(
        self, slurm: Slurm, ask: Ask, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slurm, self._ask, self._clock = slurm, ask, clock
        self._site: requests.SlurmCluster | None = None
        self._version: Any = None
        self._read = -SITE
        self._hidden: frozenset[str] = frozenset()
        self._said: dict[tuple[str, ...], str] = {}

    async def topics(self) -> dict[str, dict[str, object]]:
        """Topics as a page has them. Raises wire.Unavailable where Slurm does not answer."""
        if self._clock() >= self._read + SITE:
            await self._read_site()
        there = _nodes.nodes(await self._told("show", "node"))
        running, waiting = _nodes.jobs(await self._told("--details", "show", "job"))
        _nodes.place_jobs(there, running)
        if "nodes" in self._hidden:
            there = {}
        if "jobs" in self._hidden or "all" in self._hidden:
            for node in there.values():
                node["gpus"] = [[kind, "?" if job else ""] for kind, job in node["gpus"]]
            running, waiting = {}, []
        shown: dict[str, object] = {
            number: {name: value for name, value in job.items() if name != "on"}
            for number, job in running.items()
        }
        return {"nodes": dict(there), "jobs": shown, "queue": await self._queue(waiting[:QUEUE])}

    async def _queue(self, waiting: Sequence[dict[str, str]]) -> dict[str, object]:
        out: dict[str, object] = {}
        for place, said in enumerate(waiting, 1):
            words = _nodes.words_of(said)
            starts = said.get("StartTime", "")
            out[said["JobId"]] = {
                "place": place,
                "user": said.get("UserId", "").partition("(")[0],
                "partition": said.get("Partition", ""),
                "asked": " ".join(words),
                "reason": said.get("Reason", ""),
                "why": await self._why(tuple(words)) if place <= EXPLAINED else "",
                "priority": int(said.get("Priority", "0") or 0),
                "since": said.get("SubmitTime", ""),
                "starts": "" if starts in _UNKNOWN else starts,
            }
        return out

    async def _why(self, words: tuple[str, ...]) -> str:
        """explain-request's words; empty where it does not know."""
        if self._site is None:
            return ""
        if words not in self._said:
            self._said[words] = await asyncio.to_thread(self._explained, words)
        return self._said[words]

    def _explained(self, words: tuple[str, ...]) -> str:
        site = self._site
        if site is None:
            return ""
        try:
            given, _ = requests.parse_options(list(words), "sbatch")
            request = requests.read_request(given, "sbatch")
            answer = requests.explain(request, site, self._version)
            return requests.sentence(request, answer, site.shapes[0])
        except PodwrightError as error:
            return error.problem

    async def _read_site(self) -> None:
        texts = await asyncio.to_thread(requests.live, self._ask)
        if texts is None:
            raise Unavailable("Slurm does not answer", would_work="look whether slurmctld runs")
        site = await asyncio.to_thread(requests.read_site, texts)
        self._site = site if site.nodes else None
        self._version = read_version(texts.config)
        self._hidden = _nodes.hidden(texts.config)
        self._said = {}
        self._read = self._clock()

    async def _told(self, *words: str) -> str:
        said = await self._slurm.run("scontrol", "--oneliner", *words)
        if said.code:
            raise Unavailable(f"scontrol failed: {said.text[:200]}")
        return said.out
