"""Of several addresses the active server's is found, and a call is done once, whatever is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from podwright.client import PATIENCE, Client, FailoverTransport, FakeTransport, Transport
from podwright.errors import Fenced, NotFound, PodwrightError, TimedOut, Unavailable
from podwright.wire import (
    CreateRequest,
    Empty,
    LeaseInfo,
    NewUser,
    PartitionList,
    PartitionSpec,
    RemoveRequest,
    ServerInfo,
    UserInfo,
    UserRequest,
    Value,
    WaiterInfo,
    WaitReply,
    WaitRequest,
)

STANDS_BY = Unavailable("this server stands by for another one", standby=True, active="b")
GONE = Unavailable("the server ended the connection (without an answer)")
REFUSED = Unavailable("no server answers (connection refused)")
SILENT = TimedOut("the server gave no answer within 1.5 s")
EMPTY = PartitionList()


class Said(NamedTuple):
    """The requests to a server, and the connection of each."""

    place: str
    method: str
    request: Value


class Pair:
    """Two servers. Each gives the answers of its script, and repeats the last one for ever."""

    def __init__(self, **scripts: list[PodwrightError | Value]) -> None:
        self.scripts = scripts
        self.said: list[Said] = []
        self.time = 0.0
        self.slept = 0
        transport = FailoverTransport(
            [self._opener(place) for place in scripts],
            ",".join(scripts),
            clock=lambda: self.time,
            sleep=self._sleep,
        )
        self.client = Client(transport)

    def _sleep(self, seconds: float) -> None:
        self.slept += 1
        self.time += seconds

    def _opener(self, place: str) -> Callable[[float], Transport]:
        def answer(method: str, request: Value) -> Value:
            self.said.append(Said(place, method, request))
            script = self.scripts[place]
            line = script.pop(0) if len(script) > 1 else script[0]
            if isinstance(line, PodwrightError):
                raise line
            return line

        def opened(timeout: float) -> Transport:
            first = self.scripts[place][0]
            if first is REFUSED or first is SILENT:
                if len(self.scripts[place]) > 1:
                    self.scripts[place].pop(0)
                self.time += timeout if first is SILENT else 0
                raise first
            return FakeTransport(answer, place)

        return opened

    def places(self) -> list[str]:
        return [said.place for said in self.said]


def test_a_standby_server_is_passed_over() -> None:
    pair = Pair(a=[STANDS_BY], b=[EMPTY])
    assert pair.client.list_partitions() == []
    assert pair.client.where == "b"
    assert pair.client.list_partitions() == []
    assert pair.places() == ["a", "b", "b"], "and not asked again"
    assert pair.slept == 0


def test_server_info_is_asked_of_the_active_server() -> None:
    standby, active = ServerInfo(version="1", standby=True), ServerInfo(version="1")
    pair = Pair(a=[standby], b=[active])
    assert not pair.client.get_server_info().standby
    assert pair.places() == ["a", "b"]


def test_a_takeover_is_waited_for() -> None:
    pair = Pair(a=[EMPTY, GONE, REFUSED], b=[*[STANDS_BY] * 20, EMPTY])
    assert pair.client.list_partitions() == []
    assert pair.client.list_partitions() == []
    assert pair.client.where == "b"
    assert 1.5 < pair.time < 3


def test_a_takeover_that_takes_too_long_is_unavailable() -> None:
    pair = Pair(a=[REFUSED], b=[STANDS_BY])
    with pytest.raises(Unavailable, match=r"a,b.*connection refused.*stands by"):
        pair.client.list_partitions()
    assert PATIENCE <= pair.time < PATIENCE + 1
    late = Pair(a=[STANDS_BY], b=[STANDS_BY])
    late.client.timeout = 2.0
    with pytest.raises(Unavailable):
        late.client.list_partitions()
    assert late.time < 3


def test_no_takeover_is_waited_for_where_no_server_answers() -> None:
    pair = Pair(a=[REFUSED], b=[REFUSED])
    with pytest.raises(Unavailable, match="a,b: context deadline exceeded"):
        pair.client.list_partitions()
    assert pair.time == 0


def test_a_server_too_busy_to_take_a_connection_is_asked_again() -> None:
    pair = Pair(a=[REFUSED], b=[SILENT, SILENT, EMPTY])
    assert pair.client.list_partitions() == []
    off = Pair(a=[SILENT], b=[SILENT])
    with pytest.raises(Unavailable, match="gave no answer"):
        off.client.list_partitions()
    assert PATIENCE <= off.time < PATIENCE + 7


def test_a_call_that_is_made_again_carries_the_same_id() -> None:
    pair = Pair(a=[GONE], b=[Empty()])
    pair.client.remove_partition("p")
    pair.client.remove_partition("p")
    ids = [said.request.request_id for said in pair.said if isinstance(said.request, RemoveRequest)]
    assert len(ids) == 3
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 32


def test_a_refusal_is_not_asked_again() -> None:
    pair = Pair(a=[NotFound("there is no partition p")], b=[Empty()])
    with pytest.raises(NotFound):
        pair.client.remove_partition("p")
    assert pair.places() == ["a"]


def test_a_release_whose_answer_got_lost_was_done() -> None:
    over = Fenced("the lease is over")
    pair = Pair(a=[GONE], b=[over])
    pair.client.release("l1", 1)
    with pytest.raises(Fenced):
        pair.client.release("l1", 1)
    renewing = Pair(a=[GONE], b=[LeaseInfo(id="l1", partition="p", epoch=1)])
    assert renewing.client.renew("l1", 1).id == "l1"
    first = Pair(a=[STANDS_BY], b=[over])
    with pytest.raises(Fenced):
        first.client.release("l1", 1)  # nobody else was asked: it had been over before


def test_a_server_that_hangs_is_left_after_its_time() -> None:
    late = TimedOut("no answer within 3 s")
    pair = Pair(a=[late], b=[LeaseInfo(id="l1", partition="p", epoch=1)])
    with pytest.raises(TimedOut):
        pair.client.renew("l1", 1, timeout=3)
    pair.client.renew("l1", 1, timeout=3)
    assert pair.places() == ["a", "b"]


def test_an_administrators_call_is_made_again_under_the_same_id() -> None:
    pair = Pair(a=[GONE], b=[NewUser(user=UserInfo(name="u"), access_key="k")])
    pair.client.call("CreateUser", UserRequest(name="u"))
    first, second = (said.request for said in pair.said)
    assert first == second
    assert pair.places() == ["a", "b"]


def test_a_waiter_joins_the_queue_again_under_the_same_id() -> None:
    waits = WaitReply(waiter=WaiterInfo(id="w1"))
    pair = Pair(a=[GONE], b=[waits])
    pair.client.wait(WaitRequest(create=CreateRequest(spec=PartitionSpec(name="p", size=1))))
    first, second = (said.request for said in pair.said)
    assert isinstance(first, WaitRequest)
    assert first == second
    assert first.request_id
    pair.client.wait(WaitRequest(id="w1"))
    assert pair.said[-1].request == WaitRequest(id="w1"), "a question needs none"


def test_the_vendors_protocol_never_changes_anything_twice() -> None:
    class Forgetful(FakeTransport):
        remembers = False

    def lost(method: str, request: Value) -> Value:
        asked.append(method)
        if len(asked) == 1:
            raise GONE
        return EMPTY if method == "ListPartitions" else Empty()

    asked: list[str] = []
    transport = FailoverTransport([lambda _: Forgetful(lost, "a")] * 2, "a,a")
    with pytest.raises(Unavailable, match="without an answer"):
        Client(transport).remove_partition("p")
    assert asked == ["RemovePartition"]
