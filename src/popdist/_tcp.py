"""Collectives over TCP, for instances that no MPI has joined.

Instance 0 listens at MASTER_ADDR:MASTER_PORT until all instances have come. Each sends the address
where it listens itself, and receives the whole list. Then that port is free again, for a
framework's own meeting. A link between two instances is opened when they first exchange data.

A process that joins must know the secret of the run, which never travels. At the meeting each side
proves its knowledge by an HMAC over a fresh number of the other side; an instance that opens a link
does the same with the number in the list. Later traffic is not encrypted, as with MPI.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias
from zlib import crc32

from popdist._arrivals import STRANGERS, Arrivals
from popdist._errors import BackendError

#: Seconds within which all instances must have met.
MEET_WITHIN = 300.0
#: Seconds for one attempt to connect to instance 0, and for one turn of waiting.
_TURN = 5.0
#: Seconds to open a link. Strangers may fill an instance's accept queue while it computes.
LINK_WITHIN = 60.0
_MAC = 32
_NONCE = 16
_HEAD = 12  # group (4 bytes), length (8 bytes)
_MOST = 1 << 24  # the most bytes of a list of all instances

#: Where an instance listens: address, port, and the number that links to it must be proven with.
Place: TypeAlias = tuple[str, int, str]


class World:
    """A group of instances that communicate. rank: the place of this instance among them.

    The methods are those of an MPI communicator that popdist uses, with MPI's meaning: every member
    calls the same ones in the same order. Buffers are contiguous and are treated as bytes.
    """

    def __init__(self, net: _Net, members: tuple[int, ...]) -> None:
        self.size = len(members)
        self.rank = members.index(net.rank)
        self._net, self._members = net, members
        self._group = crc32(repr(members).encode())

    def subset(self, members: Iterable[int]) -> World:
        """Return the world of some members of this one, by rank. Only they call it."""
        return World(self._net, tuple(self._members[i] for i in members))

    def Alltoall(self, sent: Any, got: Any) -> None:
        """Send part i of `sent` to member i and receive part i of `got`; parts have one length."""
        out, received = memoryview(sent).cast("B"), memoryview(got).cast("B")
        step = len(out) // self.size
        parts = [slice(i * step, (i + 1) * step) for i in range(self.size)]
        received[parts[self.rank]] = out[parts[self.rank]]
        self._swap([out[p] for p in parts], [received[p] for p in parts])

    def Allgather(self, sent: Any, got: Any) -> None:
        """Send `sent` to all members, and receive part i of `got` from member i."""
        out, received = memoryview(sent).cast("B"), memoryview(got).cast("B")
        step = len(out)
        received[self.rank * step : (self.rank + 1) * step] = out
        parts = [received[i * step : (i + 1) * step] for i in range(self.size)]
        self._swap([out] * self.size, parts)

    def Bcast(self, values: Any, root: int) -> None:
        """Send `values` of member `root` to all others, which receive them in place."""
        view = memoryview(values).cast("B")
        if self.rank == root:
            self._swap([view] * self.size, [None] * self.size)
        else:
            self._swap([None] * self.size, [view if i == root else None for i in range(self.size)])

    def Barrier(self) -> None:
        """Wait until all members have called it."""
        self.Allgather(b"!", bytearray(self.size))

    def allgather(self, value: Any) -> list[Any]:
        """Return the values of all members, in order of rank, as JSON can hold them."""
        text = json.dumps(value).encode()
        lengths = bytearray(8 * self.size)
        self.Allgather(len(text).to_bytes(8, "big"), lengths)
        sizes = [int.from_bytes(lengths[8 * i : 8 * i + 8], "big") for i in range(self.size)]
        texts = [bytearray(size) for size in sizes]
        self._swap([memoryview(text)] * self.size, [memoryview(t) for t in texts])
        texts[self.rank] = bytearray(text)
        return [json.loads(text) for text in texts]

    def Free(self) -> None:
        """Forget this world. The links stay open for other worlds."""

    def close(self) -> None:
        """Wait for all members, then close all links."""
        self.Barrier()
        self._net.close()

    def _swap(self, outs: Sequence[memoryview | None], intos: Sequence[memoryview | None]) -> None:
        peers = [i for i in range(self.size) if i != self.rank]
        self._net.swap(
            self._group,
            {self._members[i]: out for i in peers if (out := outs[i]) is not None},
            {self._members[i]: buffer for i in peers if (buffer := intos[i]) is not None},
        )


class _Awake:
    """A time limit in seconds, without the time in which this process was stopped (Ctrl-Z)."""

    def __init__(self, seconds: float) -> None:
        self.left, self._last_turn = seconds, time.monotonic()

    def turn(self) -> bool:
        """Return whether there is time for another turn, which takes _TURN seconds at most."""
        now = time.monotonic()
        self.left -= min(now - self._last_turn, 2 * _TURN)
        self._last_turn = now
        return self.left > 0


class _Net:
    """The links of one instance to all others. places: where each listens, and its number."""

    def __init__(
        self,
        rank: int,
        places: Sequence[Place],
        listener: socket.socket,
        secret: bytes,
    ) -> None:
        self.rank = rank
        self._places, self._listener, self._secret = places, listener, secret
        self._links: dict[int, socket.socket] = {}
        self._arrivals = Arrivals(listener, lambda _: 4 + _MAC, expected=len(places))

    def swap(self, group: int, outs: dict[int, memoryview], intos: dict[int, memoryview]) -> None:
        """Send a message to each peer of `outs` and receive one from each peer of `intos`.

        Both go on at once, so full socket buffers cannot make two instances wait for each other. A
        message begins with its group and its length; other values mean that the instances are in
        different collectives, and raise BackendError. The higher instance of a pair connects and
        the lower one accepts, so a pair has exactly one link.
        """
        sending = {
            peer: [memoryview(group.to_bytes(4, "big") + len(out).to_bytes(8, "big")), out]
            for peer, out in outs.items()
        }
        heads = {peer: bytearray(_HEAD) for peer in intos}
        receiving = {peer: [memoryview(heads[peer]), buffer] for peer, buffer in intos.items()}
        for peer in {*outs, *intos}:
            if peer < self.rank and peer not in self._links:
                self._links[peer] = self._connect(peer)
        while sending or receiving:
            poll = select.poll()
            numbers: dict[int, int] = {}
            came: set[int] = set()
            if any(peer not in self._links for peer in (*sending, *receiving)):
                self._arrivals.register(poll)
            for peer, link in self._links.items():
                wanted = select.POLLOUT * (peer in sending) | select.POLLIN * (peer in receiving)
                if wanted:
                    numbers[link.fileno()] = peer
                    poll.register(link, wanted)
            for number, event in poll.poll():
                if number not in numbers:
                    came.add(number)
                    continue
                peer = numbers[number]
                if peer in sending and event & (select.POLLOUT | select.POLLERR):
                    self._send(peer, sending)
                if peer in receiving and event & (select.POLLIN | select.POLLERR | select.POLLHUP):
                    self._receive(peer, receiving, heads[peer], group, len(intos[peer]))
            if came:
                self._take_links(came)

    def _send(self, peer: int, sending: dict[int, list[memoryview]]) -> None:
        parts = sending[peer]
        with self._alive(peer), contextlib.suppress(BlockingIOError):
            done = self._links[peer].sendmsg(parts)
            while parts and done >= len(parts[0]):
                done -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][done:]
        if not parts:
            del sending[peer]

    def _receive(
        self,
        peer: int,
        receiving: dict[int, list[memoryview]],
        head: bytearray,
        group: int,
        length: int,
    ) -> None:
        parts = receiving[peer]
        with self._alive(peer), contextlib.suppress(BlockingIOError):
            count = self._links[peer].recv_into(parts[0]) if len(parts[0]) else 0
            if not count and len(parts[0]):
                raise ConnectionResetError("it closed the link")
            parts[0] = parts[0][count:]
            if not len(parts[0]):
                parts.pop(0)
                wanted = group.to_bytes(4, "big") + length.to_bytes(8, "big")
                if parts and bytes(head) != wanted:
                    raise BackendError(
                        f"instances {self.rank} and {peer} are in different collectives: every "
                        "instance must call the same ones in the same order"
                    )
                if parts and not len(parts[0]):
                    parts.pop(0)
        if not parts:
            del receiving[peer]

    @contextlib.contextmanager
    def _alive(self, peer: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackendError(f"instance {peer} has gone: {error.strerror or error}") from None

    def _connect(self, peer: int) -> socket.socket:
        host, port, number = self._places[peer]
        with self._alive(peer):
            link = socket.create_connection((host, port), LINK_WITHIN)
            name = self.rank.to_bytes(4, "big")
            link.sendall(name + _answer(self._secret, b"link", bytes.fromhex(number), name))
        return _ready(link)

    def _take_links(self, numbers: set[int]) -> None:
        """Accept links from higher instances. A link without a valid proof is closed."""
        number = bytes.fromhex(self._places[self.rank][2])
        for link, _, greeting in self._arrivals.hear(numbers):
            name, answer = greeting[:4], greeting[4:]
            peer = int.from_bytes(name, "big")
            if hmac.compare_digest(answer, _answer(self._secret, b"link", number, name)) and (
                self.rank < peer < len(self._places) and peer not in self._links
            ):
                self._links[peer] = _ready(link)
            else:
                link.close()

    def close(self) -> None:
        """Close all links."""
        self._arrivals.close()
        for link in (*self._links.values(), self._listener):
            link.close()


def join(
    rank: int, size: int, address: str, port: int, secret: bytes, within: float = MEET_WITHIN
) -> World:
    """Meet all instances at instance 0's address. within: seconds. Raises BackendError."""
    awake = _Awake(within)
    number = os.urandom(_NONCE).hex()
    try:
        if rank == 0:
            net = _invite(size, address, port, secret, number, awake)
        else:
            net = _come(rank, size, address, port, secret, number, awake=awake)
    except OSError as error:
        raise BackendError(
            f"instance {rank} cannot meet the others at {address} port {port}: "
            f"{error.strerror or error}"
        ) from None
    return World(net, tuple(range(size)))


def _invite(size: int, address: str, port: int, secret: bytes, number: str, awake: _Awake) -> _Net:
    kind = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    with contextlib.ExitStack() as closing:
        listener = closing.enter_context(_listen(address, 0, kind, size))
        address_entry = (address, listener.getsockname()[1], number)
        with _listen(address, port, kind, size) as door:
            guests = _guests(door, size, secret, awake)
        for _, guest in guests.values():
            closing.enter_context(guest)
        places = [address_entry, *(guests[rank][0] for rank in range(1, size))]
        message = json.dumps(places).encode()
        for place, guest in guests.values():
            guest.sendall(_answer(secret, b"list", bytes.fromhex(place[2]), message))
            guest.sendall(len(message).to_bytes(8, "big") + message)
            guest.close()
        closing.pop_all()
    return _Net(0, places, listener, secret)


def _listen(address: str, port: int, kind: int, size: int) -> socket.socket:
    # The backlog has room for strangers too: a full one would keep the other instances out.
    return socket.create_server((address, port), family=kind, backlog=max(size, STRANGERS))


def _guests(
    door: socket.socket, size: int, secret: bytes, awake: _Awake
) -> dict[int, tuple[Place, socket.socket]]:
    """Return all other instances by rank, once all have come. Raises BackendError."""
    guests: dict[int, tuple[Place, socket.socket]] = {}
    arrivals = Arrivals(door, _greeting, lambda: os.urandom(_NONCE), expected=size)
    with contextlib.closing(arrivals):
        while len(guests) < size - 1:
            if not awake.turn():
                for _, guest in guests.values():
                    guest.close()
                missing = sorted(set(range(1, size)) - set(guests))
                raise BackendError(f"these instances never came: {missing}")
            poll = select.poll()
            arrivals.register(poll)
            came = {number for number, _ in poll.poll(min(awake.left, _TURN) * 1000)}
            for guest, fresh, text in arrivals.hear(came):
                greeting = _greeted(fresh, text, secret, size)
                if greeting is None or greeting[0] in guests:
                    guest.close()
                else:
                    guest.settimeout(LINK_WITHIN)
                    guests[greeting[0]] = (greeting[1], guest)
    return guests


def _greeting(raw: bytes) -> int:
    """Return the bytes of a greeting: an HMAC, a length of two bytes, and the JSON text."""
    head = _MAC + 2
    return head if len(raw) < head else head + int.from_bytes(raw[_MAC:head], "big")


def _greeted(fresh: bytes, greeting: bytes, secret: bytes, size: int) -> tuple[int, Place] | None:
    """Return the rank of a visitor and where it listens, or None if it does not know the secret."""
    answer, text = greeting[:_MAC], greeting[_MAC + 2 :]
    if not hmac.compare_digest(answer, _answer(secret, b"here", fresh, text)):
        return None
    try:
        fields = json.loads(text)
        place = (str(fields["host"]), int(fields["port"]), bytes.fromhex(fields["number"]).hex())
        rank = int(fields["rank"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (rank, place) if fields["size"] == size and 0 < rank < size else None


def _come(
    rank: int, size: int, address: str, port: int, secret: bytes, number: str, *, awake: _Awake
) -> _Net:
    while True:
        try:
            door = socket.create_connection((address, port), _TURN)
            break
        except OSError:
            if not awake.turn():
                raise
            time.sleep(0.02)
    with door, contextlib.ExitStack() as closing:
        host = door.getsockname()[0]
        listener = closing.enter_context(_listen(host, 0, door.family, size))
        greeting = {"rank": rank, "size": size, "host": host, "number": number}
        text = json.dumps({**greeting, "port": listener.getsockname()[1]}).encode()
        answer = _answer(secret, b"here", _take(door, _NONCE, awake), text)
        door.sendall(answer + len(text).to_bytes(2, "big") + text)
        answer = _take(door, _MAC, awake)
        length = int.from_bytes(_take(door, 8, awake), "big")
        reply = _take(door, min(length, _MOST), awake)
        if not hmac.compare_digest(answer, _answer(secret, b"list", bytes.fromhex(number), reply)):
            raise BackendError(
                f"what listens at {address} port {port} is not instance 0 of this run"
            )
        closing.pop_all()
    return _Net(rank, [tuple(place) for place in json.loads(reply)], listener, secret)


def _answer(secret: bytes, payload: bytes, number: bytes, text: bytes) -> bytes:
    return hmac.digest(secret, payload + number + text, hashlib.sha256)


def _take(link: socket.socket, count: int, awake: _Awake) -> bytes:
    received = b""
    while len(received) < count:
        try:
            piece = link.recv(count - len(received))
        except TimeoutError:  # the socket's timeout of _TURN seconds is over
            if not awake.turn():
                raise
            continue
        if not piece:
            raise ConnectionResetError("the other side hung up")
        received += piece
    return received


def _ready(link: socket.socket) -> socket.socket:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    return link
