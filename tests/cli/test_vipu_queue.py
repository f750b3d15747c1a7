"""`vipu` in the queue, its explanations and its events, word by word."""

from __future__ import annotations

import json

import pytest
import yaml
from msgspec.structs import replace

from podwright.cli.partitions._queue import command
from podwright.cli.shared._server_options import ServerNames
from podwright.cli.vipu import main
from podwright.client import Client, FakeTransport, FoundServer
from podwright.errors import NotFound, Unavailable
from podwright.wire import (
    CreateRequest,
    Empty,
    EventInfo,
    EventList,
    EventsRequest,
    ExplainRequest,
    Explanation,
    JobInfo,
    JobList,
    PartitionName,
    PartitionSpec,
    ServerInfo,
    Standing,
    Value,
    WaiterInfo,
    WaiterList,
    WaiterName,
    WaitReply,
    WaitRequest,
)
from tests.cli.test_vipu import partition


class Told:
    """Runs the command against answers in their order, and keeps calls and output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str, *answers: Value | BaseException) -> int:
        left = list(answers)

        def handler(name: str, request: Value) -> Value:
            answer = left.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        transport = FakeTransport(handler)

        def connect(arguments: ServerNames) -> FoundServer:
            return FoundServer(Client(transport), ServerInfo(version="1"), "named")

        try:
            code = main(line.split(), connect)
        except SystemExit as end:
            code = int(str(end.code))
        self.calls = transport.calls
        self.out, self.err = self._capsys.readouterr()
        assert not left, "not everything was asked"
        return code


@pytest.fixture
def vipu(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


def waits(place: int, estimate: float = 0.0, state: str = "WAITING") -> WaitReply:
    return WaitReply(
        waiter=WaiterInfo(
            id="w1", place=place, needs="p0 to end", estimate=estimate, state=state, owner="ann"
        )
    )


DONE = WaitReply(waiter=WaiterInfo(id="w1", state="DONE"), partition=partition())


def test_create_with_wait_tells_its_place_until_the_partition_is_there(vipu: Told) -> None:
    line = "create partition p1 --size 4 --wait --priority -2 --duration 60"
    assert vipu(line, waits(2), waits(2), waits(1, 90.0), DONE, partition()) == 0
    assert vipu.out == "create partition (p1): success.\n"
    assert vipu.err.splitlines() == [
        "place 2 in the queue (w1), for p0 to end.",
        "place 1 in the queue (w1), for p0 to end; about 90 s more.",
    ]
    wanted = CreateRequest(spec=PartitionSpec(name="p1", size=4), duration=60.0)
    method, joined = vipu.calls[0]
    assert isinstance(joined, WaitRequest)
    assert len(joined.request_id) == 32
    unmarked = WaitRequest(create=wanted, priority=-2, acknowledges=True)
    assert (method, replace(joined, request_id="")) == ("Wait", unmarked)
    assert vipu.calls[1] == ("Wait", WaitRequest(id="w1", timeout=20.0))
    assert vipu.calls[-1] == ("GetPartition", PartitionName(name="p1")), "it is acknowledged"


def test_what_the_server_took_back_is_no_success(vipu: Told) -> None:
    line = "create partition p1 --size 4 --wait"
    gone = NotFound("there is no partition p1")
    assert vipu(line, DONE, gone) == NotFound.exit_code
    other = replace(partition(), created_at=partition().created_at + 1)
    assert vipu(line, DONE, other) == NotFound.exit_code
    assert "taken back" in vipu.err


def test_interrupted_it_leaves_the_line(vipu: Told) -> None:
    line = "create partition p1 --size 4 --wait"
    assert vipu(line, waits(1), KeyboardInterrupt(), Empty()) == 130
    assert vipu.calls[-1] == ("Leave", WaiterName(id="w1"))
    assert "w1 has left the queue" in vipu.err


def test_who_was_taken_out_of_the_line_need_not_leave_it(vipu: Told) -> None:
    line = "create partition p1 --size 4 --wait"
    assert vipu(line, waits(1), NotFound("nobody waits as w1")) == NotFound.exit_code
    assert vipu.calls[-1][0] == "Wait"


def test_it_outlives_a_restart_of_the_server(vipu: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    down = [Unavailable("restarting") for _ in range(5)]
    answers: list[Value | BaseException] = [*down, waits(1), *down, DONE, *down, partition()]
    assert vipu("create partition p1 --size 4 --wait", *answers) == 0
    joins = {r.request_id for _, r in vipu.calls if isinstance(r, WaitRequest) and not r.id}
    assert len(joins) == 1, "it joins again under the same id"
    assert "asking again" in vipu.err


def test_a_server_that_was_never_there_is_not_waited_for(vipu: Told) -> None:
    away = Unavailable("no server answers", errno=111)
    assert vipu("create partition p1 --size 4 --wait", away) == Unavailable.exit_code


def test_priority_needs_the_line(vipu: Told) -> None:
    assert vipu("create partition p1 --size 4 --priority 3") == 2
    assert "Add --wait" in vipu.err


def test_list_and_remove_waiters(vipu: Told) -> None:
    line = WaiterList(waiters=[waits(1, 600.0).waiter])
    assert vipu("list waiters", line) == 0
    assert "w1" in vipu.out
    assert "10 min" in vipu.out
    assert line.waiters[0].needs in vipu.out
    assert vipu("list waiters --json", line) == 0
    assert json.loads(vipu.out)[0]["place"] == 1
    assert vipu("remove waiter w1", Empty()) == 0
    assert vipu.out == "remove waiter (w1): success.\n"


def test_list_queue_has_people_and_the_jobs_of_schedulers(vipu: Told) -> None:
    line = WaiterList(waiters=[waits(1, 600.0).waiter])
    job = JobInfo(
        id="7",
        scheduler="slurm",
        place=1,
        owner="bob",
        asked="16 devices",
        reserved=8,
        estimate=600.0,
    )
    assert vipu("list queue", line, JobList(jobs=[job])) == 0
    rows = [[cell.strip() for cell in row.split("|")] for row in vipu.out.splitlines()]
    assert [row[0] for row in rows if len(row) > 1] == ["Guest", "people", "slurm"]
    assert rows[-1][1:7] == ["1", "7", "bob", "16 devices", "8", "10 min"]
    assert vipu("list queue --json", line, JobList(jobs=[job])) == 0
    found = json.loads(vipu.out)
    assert [(row["guest"], row["id"], row["reserved"]) for row in found] == [
        ("people", "w1", line.waiters[0].reserved),
        ("slurm", "7", 8),
    ]


WHY = Explanation(
    asked="a partition of 8 IPUs",
    problem="8 IPUs are free, but no aligned block of 8 is",
    lines=["partition p1 of ann has 4"],
    free=8,
    largest=4,
    partitions=[Standing(partition="p1", owner="ann", size=4)],
    nearest=PartitionSpec(name="", size=4),
)


def test_explain_a_request(vipu: Told) -> None:
    assert vipu("explain partition --size 8", WHY) == 75
    assert vipu.out.splitlines() == [
        "a partition of 8 IPUs: 8 IPUs are free, but no aligned block of 8 is.",
        "  - partition p1 of ann has 4",
        "Would start now: vipu create partition NAME --size 4",
    ]
    request = ExplainRequest(spec=PartitionSpec(name="", size=8))
    assert vipu.calls == [("Explain", request)]
    assert vipu("explain partition --size 8 --json", WHY) == 75
    assert json.loads(vipu.out)["nearest"]["size"] == 4
    starts = Explanation(asked="a partition of 4 IPUs", starts_now=True, lines=["it would start"])
    assert vipu("explain partition --size 4", starts) == 0


@pytest.mark.parametrize("words", ["p1", "partition p1"])
def test_explain_something_by_its_name(vipu: Told, words: str) -> None:
    found = Explanation(asked="partition p1", lines=["nobody holds it"], starts_now=True)
    assert vipu(f"explain {words}", found) == 0
    assert vipu.calls == [("Explain", ExplainRequest(name="p1"))]


def test_explain_without_a_size_says_what_is_missing(vipu: Told) -> None:
    assert vipu("explain partition") == 2
    assert "--size N" in vipu.err


def test_commands_are_as_one_would_type_them() -> None:
    spec = PartitionSpec(name="p1", size=8, num_gcds=2, num_ilds=2, devices=[(0, 1), (1, 1)])
    assert command(spec) == (
        "vipu create partition p1 --size 8 --num-gcds 2 --num-ilds 2 --devices 0:1,1:1"
    )


def event(number: int) -> EventInfo:
    return EventInfo(
        number=number, at=0.0, who="ann", origin="unix", what="CreatePartition", about="p1"
    )


def test_events_page_by_page(vipu: Told) -> None:
    first = EventList(events=[event(1), event(2)], last=2)
    assert vipu("events --since 0", first, EventList(last=2)) == 0
    assert len(vipu.out.splitlines()) == 2
    assert vipu.out.splitlines()[0].endswith("ann (unix) CreatePartition p1: ok")
    assert vipu.calls[1] == ("ListEvents", EventsRequest(since=2))


def test_events_in_each_format(vipu: Told) -> None:
    pages = EventList(events=[event(1), event(2)], last=2), EventList(last=2)
    assert vipu("events -o name", *pages) == 0
    assert vipu.out == "1\n2\n"
    assert vipu("events -o yaml", *pages) == 0
    assert [found["number"] for found in yaml.safe_load(vipu.out)] == [1, 2]
    assert vipu("events -o json", *pages) == 0
    as_json = vipu.out
    assert vipu("events --json", *pages) == 0
    assert vipu.out == as_json


def test_events_followed_until_interrupted(vipu: Told) -> None:
    pages = EventList(events=[event(1)], last=1), EventList(last=1), KeyboardInterrupt()
    assert vipu("events --follow --json", *pages) == 130
    assert json.loads(vipu.out)["what"] == "CreatePartition"
    assert vipu.calls[0] == ("ListEvents", EventsRequest(timeout=20.0))
