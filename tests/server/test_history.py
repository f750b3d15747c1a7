"""The history that the server writes by the minute, which must not delay the server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role, Visible
from podwright.errors import Fenced, Unavailable
from podwright.fabric import preset
from podwright.history import KEEP_ROWS, Past
from podwright.server import Identity, ListenOptions, PageOptions, Server
from podwright.server._history_recorder import MINUTE_SECONDS, Recorder
from podwright.store import MemoryHistory, MemoryStore, Row
from podwright.wire import (
    METHODS,
    CreateRequest,
    DrainRequest,
    ListRequest,
    MachineName,
    PartitionSpec,
)
from tests.server.test_web import get

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
START = 29_000_000


class World:
    """A controller, and a clock that a test moves."""

    def __init__(self, visible: Visible | None = None) -> None:
        cluster = preset("pod16")
        machines = [m for d in cluster.domains for m in d.machines]
        drivers = {m.name: SimulatedMachine(m, cluster.family) for m in machines}
        self.controller = Controller(
            MemoryStore(), [cluster], drivers, version="test", visible=visible
        )
        self.minute = START
        self.asked: list[str] = []
        self.epoch = 1
        self.history = Failing()
        self.recorder = Recorder(
            self.history,
            self.ask,
            lambda: self.controller.observer,
            lambda: self.controller.changes,
            lambda: self.epoch,
            wall_clock=lambda: self.minute * MINUTE_SECONDS + 1.0,
        )

    async def ask(self, method: str) -> Any:
        self.asked.append(method)
        call = getattr(self.controller, METHODS[method].function)
        return await call(ROOT, ListRequest())

    async def make(self, name: str, size: int = 4) -> None:
        spec = PartitionSpec(name=name, size=size)
        await self.controller.create_partition(ROOT, CreateRequest(spec=spec))

    async def pass_minute(self) -> None:
        self.minute += 1
        await self.recorder.record()

    async def partitions(self, minute: int) -> set[str]:
        return set((await Past(self.history).at(minute))["topics"]["partitions"])


class Failing(MemoryHistory):
    """Fails while told to."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.written: list[Row] = []

    async def write(self, row: Row, *, since: int, most: int, epoch: int) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(row)
        await super().write(row, since=since, most=most, epoch=epoch)


@pytest.fixture
async def world() -> Any:
    made = World()
    await made.controller.start()
    yield made
    await made.controller.close()


async def test_each_minute_is_written_and_one_without_change_asks_nothing(world: World) -> None:
    await world.recorder.record()
    await world.make("p1")
    await world.pass_minute()
    asked = len(world.asked)
    await world.pass_minute()
    assert len(world.asked) == asked
    assert not world.history.written[-1].body
    found = [await world.partitions(START + minute) for minute in range(3)]
    assert found == [set(), {"p1"}, {"p1"}]
    points = await Past(world.history).series(START, START + 3, 1)
    assert [(p.used, p.free, p.fits[2]) for p in points] == [(0, 16, 4), (4, 12, 3), (4, 12, 3)]


async def test_the_past_knows_which_machine_was_drained_while_it_was_in_use(world: World) -> None:
    await world.make("p1", 16)
    await world.recorder.record()
    await world.controller.drain_machine(ROOT, DrainRequest(name="ag2", reason="fan 3 is loud"))
    await world.pass_minute()
    await world.controller.resume_machine(ROOT, MachineName(name="ag2"))
    await world.pass_minute()
    pods = [(await Past(world.history).at(START + minute))["topics"] for minute in range(3)]
    assert [pod["clusters"]["pod16"]["drained"] for pod in pods] == [[], ["ag2"], []]
    assert {row[2] for row in pods[1]["devices"].values()} == {"IN_USE"}


async def test_writing_what_waited_is_no_change(world: World) -> None:
    """The journal writes some changes a little later, together. They were counted before that."""
    await world.make("p1")
    await world.recorder.record()
    count = len(world.asked)
    await world.controller._state.journal.flush()
    await world.pass_minute()
    assert len(world.asked) == count


async def test_readings_are_recorded_each_minute_since_nothing_counts_their_changes(
    world: World,
) -> None:
    (cluster,) = world.controller._state.inventory.clusters.values()
    machine = cluster.machines()[0]
    report = await world.controller._state.hardware.describe(machine)

    def measure(load: int) -> None:
        first, *others = report.devices
        attributes = {**first.attributes, "load": f"{load} %"}
        devices = (msgspec.structs.replace(first, attributes=attributes), *others)
        cluster.learn(machine, report._replace(devices=devices))

    measure(10)
    await world.recorder.record()
    measure(70)
    await world.pass_minute()
    points = await Past(world.history).series(START, START + 2, 1)
    assert [p.measured and p.measured.load for p in points] == [10, 70]


async def test_a_minute_costs_what_changed_and_not_what_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        await world.make(f"p{number}", size=1)
    await world.recorder.record()
    looked: list[str] = []
    observer = world.controller.observer

    def noted(look: Any) -> Any:
        def look_and_note(key: str) -> Any:
            looked.append(key)
            return look(key)

        return look_and_note

    monkeypatch.setattr(observer, "partition", noted(observer.partition))
    monkeypatch.setattr(observer.summary, "runs", noted(observer.summary.runs))
    await world.make("new", size=1)
    await world.pass_minute()
    assert looked == ["pod16/0", "new"]
    assert await world.partitions(START + 1) == {"new", *(f"p{n}" for n in range(8))}


async def test_more_changes_than_are_remembered_are_recorded_as_a_whole(world: World) -> None:
    await world.recorder.record()
    await world.make("p1", size=1)
    world.controller.observer.partition_feed.touch_all()
    await world.pass_minute()
    assert await world.partitions(START + 1) == {"p1"}


async def test_a_cluster_that_was_defined_anew_is_recorded_as_a_whole(world: World) -> None:
    await world.recorder.record()
    (cluster,) = world.controller._state.inventory.clusters.values()
    cluster.redefined_now()
    await world.make("p1", size=1)
    await world.pass_minute()
    topics = (await Past(world.history).at(START + 1))["topics"]
    assert len(topics["devices"]) == 16
    assert set(topics["partitions"]) == {"p1"}


@pytest.mark.parametrize(
    "error", [Unavailable("the disk of the history is full"), OSError(30, "read only"), Fenced("x")]
)
async def test_a_history_that_fails_stops_nothing_and_goes_on_later(
    world: World, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    await world.recorder.record()
    world.history.error = error
    await world.pass_minute()
    await world.pass_minute()
    await world.make("p1")
    said = [record for record in caplog.records if "history cannot be written" in record.message]
    assert len(said) == (0 if isinstance(error, Fenced) else 1), "said once"
    world.history.error = None
    await world.pass_minute()
    assert await world.partitions(START) == set()
    assert await world.partitions(START + 3) == {"p1"}
    assert await world.history.at(START + 2) is None


async def test_a_clock_that_is_set_back_and_a_server_that_stands_by_write_nothing(
    world: World,
) -> None:
    await world.recorder.record()
    rows = len(world.history.written)
    world.minute -= 5
    await world.recorder.record()
    world.minute += 10
    world.epoch = 0
    await world.recorder.record()
    assert len(world.history.written) == rows
    world.epoch = 2
    await world.recorder.record()
    assert world.history.written[-1].start == START + 5


async def test_no_more_than_thirty_days_are_kept(world: World) -> None:
    await world.recorder.record()
    world.minute += KEEP_ROWS + 1
    await world.recorder.record()
    assert await world.history.at(START) is None


async def served(path: str, visible: Visible | None = None, *, secure: bool = False) -> Any:
    """The answer of a whole server to an anonymous caller; one minute is written."""
    world = World(visible)
    identity = Identity(secure=secure)
    server = Server(
        world.controller,
        ListenOptions(None, host=None, web=("127.0.0.1", 0)),
        page_options=PageOptions(history=world.history),
        identity=identity,
    )
    await server.start()
    try:
        await world.make("p1")
        await world.recorder.record()
        head, _, body = (await get(server, path)).partition("\r\n\r\n")
        return int(head.split()[1]), json.loads(body)
    finally:
        await server.stop(0)


async def test_what_was_is_told_over_http() -> None:
    when = START * 60
    status, found = await served(f"/v1/history?since={when}&until={when + 59}")
    assert status == 200
    assert [point[:3] for point in found] == [[when, 4, 12]]
    status, found = await served(f"/v1/history/at?time={when}")
    assert list(found["topics"]["partitions"]) == ["p1"]
    assert (await served(f"/v1/history/at?time={when - 60}"))[0] == 404
    assert (await served("/v1/history/at?time=now"))[0] == 400
    status, found = await served("/v1/fragments")
    (cluster,) = found.values()
    assert cluster["sizes"] == [[1, 12, 0], [2, 6, 0], [4, 3, 0], [8, 1, 4], [16, 0, 12]]


async def test_what_is_private_is_private_in_what_was_too() -> None:
    path = f"/v1/history/at?time={START * 60}"
    status, found = await served(path, Visible(private=frozenset({"partitions"})))
    assert status == 200
    assert found["topics"]["partitions"] == {}
    assert "p1" not in json.dumps(found)
    for hidden in (path, "/v1/history", "/v1/fragments"):
        assert (await served(hidden, secure=True))[0] == 401
