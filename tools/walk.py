"""Counts the files that a request passes through: `python -m tools.walk`.

`--write` puts the counts into docs/design/house.md; a test compares them. `-v` names the files.

For each of three requests: how many files of `src/podwright` are handed it, and how often it comes
back to one that it had left for another. A call hands it over if one of its arguments is the
request, or what was made of it before anything was decided; each walk names these types.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
ROOT = REPOSITORY / "src" / "podwright"
PAGE = REPOSITORY / "docs" / "design" / "house.md"
_TABLE_HEAD = "| request | files | returns |\n|---|---|---|\n"


class Walk:
    """Follows calls while it is entered, or until `run` of a file. kinds: names of the
    types that are followed."""

    def __init__(self, *kinds: str, until: str = "/") -> None:
        self._kinds = frozenset(kinds)
        self._over, self._until = False, until
        self._frames: set[FrameType] = set()  # a coroutine that goes on is no call
        self.steps: list[str] = []

    def __enter__(self) -> Walk:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or self._over or not name.startswith(str(ROOT)):
            return
        if name.endswith(self._until) and frame.f_code.co_name == "run":
            self._over = True
        if frame.f_code.co_name.startswith("<") or frame in self._frames:
            return  # a comprehension; a coroutine that goes on
        self._frames.add(frame)
        code = frame.f_code
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not any(type(frame.f_locals.get(name)).__name__ in self._kinds for name in given):
            return
        if not self.steps or self.steps[-1] != name:
            self.steps.append(name)

    @property
    def files(self) -> int:
        """Files that were entered."""
        return len(set(self.steps))

    @property
    def returns(self) -> int:
        """Entries of a file that had been left before."""
        return len(self.steps) - self.files


async def _create() -> Walk:
    from podwright.agents import SimulatedMachine
    from podwright.controller import Caller, Controller, Role
    from podwright.fabric import preset
    from podwright.store import MemoryStore
    from podwright.wire import CreateRequest, PartitionSpec

    cluster = preset("pod16")
    machines = [machine for domain in cluster.domains for machine in domain.machines]
    drivers = {machine.name: SimulatedMachine(machine, cluster.family) for machine in machines}
    controller = Controller(MemoryStore(), [cluster], drivers, version="walk")
    await controller.start()
    caller = Caller("alice", 1001, Role.USER)
    walk = Walk("CreateRequest", "PartitionSpec", "CheckedSpec")
    with walk:
        request = CreateRequest(spec=PartitionSpec(name="p", size=4))
        await controller.create_partition(caller, request)
    await controller.close()
    return walk


async def _begins() -> Walk:
    from tests.guests.slurm.native.test_service import POD, ask

    from podwright.guests.slurm.service import Service, Site
    from podwright.testing import FakePod, FakeSlurm

    service = Service(Site(pods=(POD,)), FakePod(), FakeSlurm())
    await service.refresh()
    walk = Walk("HookJob", "WantedDevices")
    with walk:
        await service.begin_job(ask(7, 4))
    return walk


async def _launch() -> Walk:
    from tests.launcher.alone import find

    from podwright.hosts import read_cores
    from podwright.launcher import launch, make_plan, parse

    with tempfile.TemporaryDirectory() as folder:
        os.environ["CALLS"] = f"{folder}/calls"
        words = ["--num-replicas=4", "--launcher=local", "--", "true"]
        plan = make_plan(parse(words), os.environ, cores=read_cores(os.environ))
        walk = Walk("Plan", until="/_watch_launch.py")
        with walk:
            launch(plan, os.environ, find=find)
    return walk


WALKS: dict[str, Callable[[], Coroutine[Any, Any, Walk]]] = {
    "`create_partition(request)`": _create,
    "`launch(plan)`, until it is watched": _launch,
    "a hook's `begin_job(job)`": _begins,
}


def take_walks() -> dict[str, Walk]:
    """Each walk, by what the page calls it."""
    return {name: asyncio.run(walk()) for name, walk in WALKS.items()}


def table(walks: Mapping[str, Walk]) -> str:
    """The counts as the page shows them."""
    rows = (f"| {name} | {walk.files} | {walk.returns} |\n" for name, walk in walks.items())
    return _TABLE_HEAD + "".join(rows)


def page_table(page: str) -> str:
    """The table that a page shows."""
    match = re.search(re.escape(_TABLE_HEAD) + r"(\|.*\|\n)*", page)
    assert match is not None, "the page has no table of walks"
    return match[0]


def main() -> None:
    """Print the table, or write it into the page."""
    walks = take_walks()
    print(table(walks), end="")
    if "-v" in sys.argv:
        for name, walk in walks.items():
            print(f"{name}: " + " ".join(Path(step).stem for step in walk.steps))
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page.replace(page_table(page), table(walks)), encoding="utf-8")


if __name__ == "__main__":
    main()
