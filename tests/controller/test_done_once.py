"""Every call that changes something has its effect once, whatever happens to its reply.

A call is made, and then repeated with the same request and the same `request_id`, as a client does
that has lost the reply. In between, nothing happens, or the server is killed at one of its commits,
or another server takes over there. The final state must be that of one undisturbed call.

The rows are those of `test_full_disk`, which has every call of the table that is written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from podwright.errors import (
    Fenced,
    NotFound,
    PodwrightError,
    Unauthenticated,
    Unavailable,
)
from podwright.store import Change
from podwright.wire import (
    METHODS,
    AcquireRequest,
    CreateRequest,
    EnqueueRequest,
    JobInfo,
    JobReport,
    Named,
    PoolHead,
    Repeat,
    UserRequest,
    Value,
    WaitRequest,
    virm,
)
from tests.controller.test_full_disk import (
    CALLS,
    Pod,
    Step,
    asked_to_move,
    asks,
    enlarge,
    hung,
    job_asked,
    machine_fails,
    nothing,
    one,
    shrink,
    spec,
    waiting,
)
from tests.controller.world import ALICE, ALL, ROOT
from tests.differing_fields import differing_fields

#: The vendor's calls carry no id, so a client cannot make one again.
WITHOUT_ID = {"CreatePartition", "RemovePartition", "ResetPartition"}
ID = "the id of this request"
FIRST = EnqueueRequest(pools=[PoolHead(cluster="pod16", job="job 7", owner="alice", sizes=[4])])
JOBS = JobReport(jobs=[JobInfo(id="7", asked="4", needs="devices")])


def join(acknowledges: bool, **wanted: Any) -> Step:
    request = WaitRequest(acknowledges=acknowledges, **wanted)
    return asks("Wait", request, ALICE)


def acquire(size: int, **fields: Any) -> Step:
    return asks("Acquire", AcquireRequest(spec=spec("p1", size), ttl=20.0, **fields), ALICE)


def _comparable(name: str, before: Step, call: Step) -> bool:
    """Return whether a row of the other test has the same outcome when its server ends within the
    call.

    It has not if machines fail, because a start then proceeds differently from a step. It has not
    if devices are kept for a move, because a new server has forgotten the move and the devices are
    free. A replaced partition of another owner is removed first; if the server ends right then, the
    new partition is the caller's.
    """
    devices_kept = name == "CreatePartition" and before in (asked_to_move, job_asked)
    exceptions = before in (machine_fails, hung) or call in (enlarge, shrink)
    return bool(name) and not (exceptions or devices_kept)


#: What is in memory alone, so that the next server may not know of it before the call is repeated.
#: A move that it has not heard of is called off: the launch stays where it is.
IN_MEMORY = {"Enqueue", "ReportJobs", "AskToMove", "CallOffMove"}
CALLED_OFF = {"Move"}
ROWS: list[tuple[str, Step, Step]] = [
    *(row for row in CALLS if _comparable(*row)),
    ("Acquire", one, acquire(8, update=True, keep=True)),
    ("Acquire", one, acquire(2, update=True)),
    ("Wait", one, join(True, create=CreateRequest(spec=spec("p2", 8)))),
    ("Wait", one, join(True, create=CreateRequest(spec=spec("p1", 8)))),
    ("Wait", one, join(True, create=CreateRequest(spec=spec("p2", 16)))),
    ("Wait", waiting, join(True, create=CreateRequest(spec=spec("p3", 16)))),
    ("Wait", nothing, join(True, acquire=AcquireRequest(spec=spec("p2"), create=True, ttl=99.0))),
    ("Wait", nothing, join(False, acquire=AcquireRequest(spec=spec("p2"), create=True, ttl=99.0))),
    ("ReportJobs", nothing, asks("ReportJobs", JOBS)),
    ("Enqueue", nothing, asks("Enqueue", FIRST)),
]  # fmt: skip


class MarkedPod(Pod):
    """A pod whose requests have ids from `marked` on, as those of a client have."""

    marked = False

    async def ask(self, method: str, request: Value, caller: Any = ROOT) -> Any:
        question = isinstance(request, WaitRequest) and request.id
        if self.marked and hasattr(request, "request_id") and not question:
            request = msgspec.structs.replace(request, request_id=ID)
        return await super().ask(method, request, caller)

    async def killed(self) -> None:
        """Kill the server. Everything that was not committed is lost."""
        self.controller._state.journal.failure = Unavailable("killed")  # its timer begins nothing
        current = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(BaseException):
                await task

    async def restarted(self) -> None:
        """Kill the server, and start the next one completely."""
        await self.killed()
        await self.start()
        await self.quiet()

    def taken_over_at(self, nth: int) -> None:
        """Let another server open the store right before the nth commit from now."""
        commit, left = self.store.commit, nth

        async def committing(changes: Sequence[Change]) -> None:
            nonlocal left
            left -= 1
            if not left:
                await self.store.reopened().open()
            await commit(changes)

        self.store.commit = committing  # type: ignore[method-assign]

    async def picture(self) -> dict[str, object]:
        """Return the state, without the numbers and times that differ between any two runs."""
        state, found = self.controller._state, self.controller
        waiters = found._services.waiting._waiters.values()
        return {
            "partitions": [_plain(p) for p in (await found.list_partitions(ROOT, ALL)).partitions],
            "leases": sorted(
                map(
                    str,
                    map(_plain, (await found.list_leases(ROOT, ALL)).leases),
                )
            ),
            "devices": [
                (d.device.machine, d.device.index, d.state, d.partition)
                for d in (await found.list_devices(ROOT, ALL)).devices
            ],
            "configured": {
                (name, index): device.partition
                for name, machine in self.machines.items()
                for index, device in enumerate(machine.devices)
            },
            "line": [
                (waiter.owner, waiter.asked, waiter.place)
                for waiter in (await found.list_waiters(ROOT, ALL)).waiters
            ],
            "served": sorted(
                (waiter.record.name, waiter.partition, bool(waiter.lease))
                for waiter in waiters
                if waiter.partition
            ),
            "agents": [
                (a.name, a.host, a.port) for a in (await found.list_agents(ROOT, ALL)).agents
            ],
            "clusters": (await found.list_clusters(ROOT, ALL)).clusters,
            "allocations": (await found.list_allocations(ROOT, ALL)).allocations,
            "users": [_plain(user) for user in (await found.list_users(ROOT, ALL)).users],
            "quotas": (await found.list_quotas(ROOT, ALL)).quotas,
            "shares": (await found.list_shares(ROOT, ALL)).shares,
            "jobs": [_plain(job) for job in (await found.list_jobs(ROOT, ALL)).jobs],
            "moves": sorted((m.partition, str(m.target.blocks)) for m in state.moves.values()),
            "moving": found._services.moves.allowed,
            "quarantine": sorted(q.partition for q in state.quarantine.values()),
            "fences": sorted(entry.name for entry in state.fences.values()),
        }


#: Fields whose values are others in every run: numbers, ids and times. A new field that changes
#: with time belongs here.
_VOLATILE = frozenset(
    ("id", "epoch", "created_at", "expires_in", "leases", "move", "move_within", "parent", "since")
)


def _plain(value: Value) -> dict[str, object]:
    fields = {field: getattr(value, field) for field in value.__struct_fields__}
    return {name: field for name, field in fields.items() if name not in _VOLATILE}


class Run(NamedTuple):
    """The final state of a run, and how the last call ended: the error's type, or None."""

    picture: dict[str, object]
    outcome: type[PodwrightError] | None


async def _outcome(call: Step, pod: MarkedPod) -> type[PodwrightError] | None:
    try:
        await call(pod)
    except PodwrightError as error:
        return type(error)
    finally:
        await pod.quiet()
    return None


async def _create_call(before: Step) -> MarkedPod:
    pod = await MarkedPod.made(before)
    pod.machine("ag7")
    pod.marked = True
    return pod


async def _repeated_call(name: str, call: Step, pod: MarkedPod) -> type[PodwrightError] | None:
    outcome = await _outcome(call, pod)
    if name == "Release" and outcome is Fenced:
        return None  # the client knows what that means where it asks again: it was done
    return outcome


async def _finished(pod: MarkedPod, outcome: type[PodwrightError] | None) -> Run:
    """Return the state after everything that goes on by itself has been done."""
    await pod.time.advance(2)
    await pod.quiet()
    run = Run(await pod.picture(), outcome)
    await pod.controller.close()
    return run


async def _once(before: Step, call: Step, *, restart: bool) -> Run:
    pod = await _create_call(before)
    outcome = await _outcome(call, pod)
    if restart:
        await pod.controller._state.journal.flush()
        await pod.restarted()
    return await _finished(pod, outcome)


async def _twice(name: str, before: Step, call: Step) -> Run:
    """Run the call twice, as if the first reply was lost."""
    pod = await _create_call(before)
    await _outcome(call, pod)
    return await _finished(pod, await _repeated_call(name, call, pod))


async def _disturbed(
    name: str, before: Step, call: Step, disturb: Callable[[MarkedPod], None]
) -> tuple[Run, bool]:
    """Let the server end somewhere, and ask the next one. Returns whether it ended within the
    call.
    """
    pod = await _create_call(before)
    old = pod.controller
    disturb(pod)
    await _outcome(call, pod)
    within = old.failure is not None
    await pod.restarted()
    return await _finished(pod, await _repeated_call(name, call, pod)), within


def _ways(nth: int) -> Iterator[tuple[str, Callable[[MarkedPod], None]]]:
    for durable in (False, True):
        yield (
            f"killed {'behind' if durable else 'before'} commit {nth}",
            lambda pod: pod.store.fail(nth, durable=durable, lasting=True),  # noqa: B023
        )
    yield f"taken over at commit {nth}", lambda pod: pod.taken_over_at(nth)


def _differences(run: Run, expected: Run) -> list[str]:
    differences = differing_fields(run.picture, expected.picture)
    if run.outcome is not expected.outcome:
        differences.append(f"outcome: {run.outcome}, not {expected.outcome}")
    return differences


@pytest.mark.parametrize(
    ("name", "before", "call"),
    ROWS,
    ids=[f"{name}-{before.__name__}-{n}" for n, (name, before, _) in enumerate(ROWS)],
)
def test_every_call_has_its_effect_once(name: str, before: Step, call: Step) -> None:
    # A loop of its own, of which all tasks may be killed.
    asyncio.run(_check_row(name, before, call))


def _assert_none(differences: list[str], interruption: str) -> None:
    if differences:
        lines = "\n".join(differences)
        pytest.fail(
            f"{interruption}, and the state or the outcome is another than without that:\n{lines}\n"
            "Fields that are others in every run belong in _VOLATILE.",
            pytrace=False,
        )


async def _check_row(name: str, before: Step, call: Step) -> None:
    undisturbed = await _once(before, call, restart=False)
    _assert_none(_differences(await _twice(name, before, call), undisturbed), "the answer was lost")
    expected = [await _once(before, call, restart=True)]
    if name in IN_MEMORY:
        expected.append(undisturbed)
    if name in CALLED_OFF:
        expected.append(await _once(before, nothing, restart=True))
    for nth in range(1, 30):
        reached = False
        for interruption, disturb in _ways(nth):
            run, within = await _disturbed(name, before, call, disturb)
            _assert_none(min((_differences(run, one) for one in expected), key=len), interruption)
            reached |= within
        if not reached:
            return
    raise AssertionError("it writes for ever")


def test_every_call_that_changes_something_is_here_and_can_be_made_again() -> None:
    changing = {method.name: method for method in METHODS.values() if method.changes}
    assert changing.keys() == {name for name, _, _ in ROWS}
    for method in changing.values():
        assert method.repeat is not Repeat.NEVER, method.name
        fields = {field.name for field in msgspec.structs.fields(method.request)}
        assert set(method.repeat.fields) <= fields, method.name


def test_the_vendors_calls_are_the_only_exception() -> None:
    assert {name for name, method in virm.VIRM_METHODS.items() if method.changes} == WITHOUT_ID
    page = (Path(__file__).parents[2] / "docs/admin/storage.md").read_text()
    assert all(f"`virmgrpc.{name}`" in page for name in WITHOUT_ID)


def test_a_key_that_got_lost_opens_nothing() -> None:
    async def life() -> None:
        pod = await MarkedPod.made(nothing)
        request = UserRequest(name="u1", request_id=ID)
        lost = await pod.ask("CreateUser", request)
        await pod.controller.authenticate("u1", lost.access_key)
        second = await pod.ask("CreateUser", request)
        assert second.user == lost.user
        with pytest.raises(Unauthenticated):
            await pod.controller.authenticate("u1", lost.access_key)
        await pod.restarted()
        await pod.controller.authenticate("u1", second.access_key)
        await pod.ask("RemoveUser", Named(name="u1"))
        await pod.time.advance(1)
        other = await pod.ask("CreateUser", UserRequest(name="u1"))
        with pytest.raises(NotFound, match="removed since"):
            await pod.ask("CreateUser", request)
        await pod.controller.authenticate("u1", other.access_key)

    asyncio.run(life())
