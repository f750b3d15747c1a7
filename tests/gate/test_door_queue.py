"""Connections wait for a place at the gate in turn, within a bound, and for a limited time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from podwright.gate._connection_queue import (
    PATIENCE_S,
    RETRY_AFTER_EMPTY_S,
    RETRY_AFTER_FULL_S,
    Arrival,
    DoorQueue,
)

Arrive = Callable[[str, float], Arrival]


@pytest.fixture
def queue(arrive: Arrive) -> Iterator[DoorQueue]:
    door_queue = DoorQueue(4)
    yield door_queue
    door_queue.release()


@pytest.fixture
def arrive() -> Iterator[Arrive]:
    """Makes arrivals of a caller at a time; `clients` are the other ends of their connections."""
    clients: list[socket.socket] = []

    def make(caller: str, since: float = 0.0) -> Arrival:
        server, client = socket.socketpair()
        clients.extend((client, server))
        return Arrival(server, client.getsockname() or "here", caller, since)

    make.clients = clients  # type: ignore[attr-defined]
    yield make
    for connection in clients:
        connection.close()


def test_callers_are_served_in_turn(queue: DoorQueue, arrive: Arrive) -> None:
    many = [arrive("a", 0), arrive("a", 1), arrive("a", 2)]
    few = arrive("b", 3)
    for arrival in (*many, few):
        assert queue.add(arrival) is None
    served = []
    while len(queue):
        first = next(queue.heads())
        queue.remove(first)
        served.append(first)
    assert served == [many[0], few, many[1], many[2]]


def test_a_full_queue_takes_the_newest_of_whoever_has_most(
    queue: DoorQueue, arrive: Arrive
) -> None:
    many = [arrive("a", number) for number in range(4)]
    for arrival in many:
        queue.add(arrival)
    assert queue.add(arrive("b", 4)) is many[3]
    assert queue.add(arrive("b", 5)) is many[2]
    another = arrive("b", 6)
    assert queue.add(another) is another  # two each: that is fair
    assert len(queue) == 4


def test_a_queue_of_no_places_gives_every_arrival_back(arrive: Arrive) -> None:
    queue, arrival = DoorQueue(0), arrive("a", 0)
    assert queue.add(arrival) is arrival
    queue.release()


def test_a_connection_that_waited_too_long_is_late(queue: DoorQueue, arrive: Arrive) -> None:
    early, late = arrive("a", 100.0), arrive("b", 101.0)
    queue.add(early)
    queue.add(late)
    assert list(queue.late(100.5 + PATIENCE_S)) == [early]
    assert list(queue.late(101.0 + PATIENCE_S)) == [early, late]


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0"])
def test_a_connection_that_hangs_up_leaves_the_queue(
    queue: DoorQueue, arrive: Arrive, sent: bytes
) -> None:
    """This includes a client that had sent something before, which is never read."""
    closed, stays = arrive("a", 0), arrive("a", 0)
    queue.add(closed)
    queue.add(stays)
    client = arrive.clients[0]  # type: ignore[attr-defined]
    client.send(sent)
    arrive.clients[2].send(sent)  # type: ignore[attr-defined]
    assert queue.drop_closed() == 0
    client.close()
    assert queue.drop_closed() == 1
    assert list(queue.heads()) == [stays]
    assert closed.connection.fileno() == -1


def test_the_fuller_the_queue_the_later_one_should_try_again(
    queue: DoorQueue, arrive: Arrive
) -> None:
    seconds = [queue.retry_after_s()]
    for number in range(4):
        queue.add(arrive("a", number))
        seconds.append(queue.retry_after_s())
    assert seconds == sorted(seconds)
    assert (seconds[0], seconds[-1]) == (RETRY_AFTER_EMPTY_S, RETRY_AFTER_FULL_S)
