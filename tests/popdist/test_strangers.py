"""What strangers may say where instances meet: nobody is let in, held up or felled by it.

Made-up bytes and mutated greetings, at instance 0's door, at each instance's own, and from what
only claims to be instance 0. A few in each run of the tests, thousands with `make soak`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popdist import BackendError
from popdist._tcp_collectives import World, _proof, join
from tests.popdist.test_tcp import SECRET
from tests.ports import free_port

HOST = "127.0.0.1"


def greeting(fresh: bytes, secret: bytes, **said: object) -> bytes:
    """What an instance says at instance 0's door."""
    whole = {"rank": 1, "size": 2, "host": HOST, "number": "00" * 16, "port": 1, **said}
    text = json.dumps(whole).encode()
    return _proof(secret, b"here", fresh, text) + len(text).to_bytes(2, "big") + text


@contextlib.contextmanager
def first(until: float = 120, size: int = 2) -> Iterator[tuple[int, list[World]]]:
    """Instance 0 in a thread of its own: the port of its door, and its world once all have met."""
    at, found = free_port(), list[World]()
    thread = threading.Thread(target=lambda: found.append(join(0, size, HOST, at, SECRET, until)))
    thread.start()
    try:
        yield at, found
    finally:
        thread.join(300)
        assert not thread.is_alive()
        for world in found:
            world._net.close()


def knock(at: int) -> socket.socket:
    """A connection, as soon as somebody listens there."""
    while True:
        try:
            line = socket.create_connection((HOST, at), 60)
        except ConnectionRefusedError:
            continue
        line.settimeout(60)
        return line


def exact(line: socket.socket, count: int) -> bytes:
    said = b""
    while len(said) < count:
        piece = line.recv(count - len(said))
        assert piece
        said += piece
    return said


def both(found: list[World], second: World, work: Callable[[World], object]) -> list[object]:
    """What a collective of two gives each."""
    said: list[object] = [None, None]

    def member(rank: int, world: World) -> None:
        said[rank] = work(world)

    threads = [threading.Thread(target=member, args=pair) for pair in enumerate((*found, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    return said


def test_the_silent_and_the_slow_hold_up_nobody() -> None:
    """More of them than may wait at a door; each was waited for alone, and for five seconds."""
    with contextlib.ExitStack() as closing:
        at, found = closing.enter_context(first())
        strangers = [closing.enter_context(knock(at)) for _ in range(200)]
        for stranger in strangers[::2]:
            with contextlib.suppress(OSError):
                stranger.sendall(b"x")
        second = join(1, 2, HOST, at, SECRET, 120)
        closing.callback(second._net.close)
        place = second._net._places[0][1]
        more = [closing.enter_context(knock(place)) for _ in range(100)]
        for stranger in more[::2]:
            with contextlib.suppress(OSError):
                stranger.sendall(b"x")
        while not found:
            pass
        assert both(found, second, lambda world: world.allgather(world.rank)) == [[0, 1]] * 2


def test_an_instance_may_stand_still_between_connecting_and_greeting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-Z or `scontrol suspend`: all of a launch stands still, for hours, and goes on."""
    with first() as (at, found), knock(at) as second:
        fresh = exact(second, 16)
        clock = time.monotonic
        monkeypatch.setattr("popdist._tcp_collectives.time", Mock(monotonic=lambda: clock() + 3600))
        for _ in range(2):  # when the second is heard, instance 0 has looked at all before it
            with knock(at) as stranger:
                exact(stranger, 16)
        second.sendall(greeting(fresh, SECRET))
        assert len(exact(second, 32)) == 32
    assert found


@pytest.mark.parametrize(
    "said",
    [
        {"rank": 0}, {"rank": 2}, {"rank": -1}, {"rank": "one"}, {"rank": None}, {"size": 3},
        {"port": "a"}, {"number": "xyz"}, {"host": None, "number": 5},
    ],
)  # fmt: skip
def test_a_member_that_says_nonsense_is_no_guest(said: dict[str, object]) -> None:
    """It knows the secret, and speaks another version of this, say."""
    with first() as (at, _):
        with knock(at) as guest:
            guest.sendall(greeting(exact(guest, 16), SECRET, **said))
            assert guest.recv(1) == b""
        join(1, 2, HOST, at, SECRET, 120)._net.close()


#: How a greeting is changed: where, what is put there, and how much of the rest goes.
changes = st.tuples(st.integers(0, 300), st.binary(max_size=8), st.integers(0, 8))
hostile = st.one_of(
    st.binary(max_size=400),
    st.lists(changes, min_size=1, max_size=4),
    st.sampled_from([b"\xff" * 34, b"\0" * 34, b"\0" * 32 + b"\xff\xff" + b"[" * 65535]),
)


def changed(good: bytes, how: bytes | list[tuple[int, bytes, int]]) -> bytes:
    if isinstance(how, bytes):
        return how
    for at, put, gone in how:
        at %= len(good) + 1
        good = good[:at] + put + good[at + gone :]
    return good


Said = bytes | list[tuple[int, bytes, int]]


def at_the_doors(some: list[Said]) -> None:
    """Strangers first, then the second instance: the two meet, and their collective goes on."""
    with contextlib.ExitStack() as closing:
        at, found = closing.enter_context(first())
        for how in some:
            stranger = closing.enter_context(knock(at))
            with contextlib.suppress(OSError):
                fresh = exact(stranger, 16)
                stranger.sendall(changed(greeting(fresh, b"guessed"), how))
        second = join(1, 2, HOST, at, SECRET, 120)
        closing.callback(second._net.close)
        number = bytes.fromhex(second._net._places[0][2])
        for how in some:
            stranger = closing.enter_context(knock(second._net._places[0][1]))
            name = (1).to_bytes(4, "big")
            with contextlib.suppress(OSError):
                stranger.sendall(changed(name + _proof(b"guessed", b"link", number, name), how))
        while not found:
            pass
        assert both(found, second, lambda world: world.allgather(world.rank)) == [[0, 1]] * 2


def from_an_impostor(how: Said) -> None:
    """It listens where instance 0 should: it is not believed, whatever it says."""
    text = json.dumps([[HOST, 1, "00" * 16], [HOST, 2, "00" * 16]]).encode()
    good = b"n" * 16 + b"m" * 32 + len(text).to_bytes(8, "big") + text
    with socket.create_server((HOST, 0)) as server:

        def speak() -> None:
            guest, _ = server.accept()
            with guest, contextlib.suppress(OSError):
                guest.sendall(changed(good, how))
                guest.shutdown(socket.SHUT_WR)
                while guest.recv(4096):
                    pass

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(BackendError):
            join(1, 2, HOST, server.getsockname()[1], SECRET, 60)
        thread.join(300)
        assert not thread.is_alive()


@settings(max_examples=20)
@given(st.lists(hostile, max_size=4))
def test_whatever_strangers_say_instances_meet(some: list[Said]) -> None:
    at_the_doors(some)


@settings(max_examples=30)
@given(hostile)
def test_whatever_an_impostor_says_it_is_not_believed(how: Said) -> None:
    from_an_impostor(how)


@pytest.mark.soak
@given(st.lists(hostile, max_size=40))
def test_thousands_of_strangers(some: list[Said]) -> None:
    at_the_doors(some)


@pytest.mark.soak
@given(hostile)
def test_thousands_of_impostors(how: Said) -> None:
    from_an_impostor(how)
