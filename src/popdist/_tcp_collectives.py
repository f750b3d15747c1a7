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

from popdist._errors import BackendError
from popdist._pending_connections import MAX_STRANGERS, Arrivals

#: Seconds within which all instances must have met.
MEET_LIMIT_S = 300.0
#: Seconds for one attempt to connect to instance 0, and for one turn of waiting.
_WAIT_TURN_S = 5.0
#: Seconds to open a link. Strangers may fill an instance's accept queue while it computes.
LINK_LIMIT_S = 60.0
_MAC_BYTES = 32
_NONCE_BYTES = 16
_HEAD_BYTES = 12  # group (4 bytes), length (8 bytes)
_MAX_LIST_BYTES = 1 << 24  # the most bytes of a list of all instances

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
        sent_bytes, received_bytes = memoryview(sent).cast("B"), memoryview(got).cast("B")
        length = len(sent_bytes) // self.size
        part_slices = [slice(member * length, (member + 1) * length) for member in range(self.size)]
        received_bytes[part_slices[self.rank]] = sent_bytes[part_slices[self.rank]]
        self._swap_with_members(
            [sent_bytes[part_slice] for part_slice in part_slices],
            [received_bytes[part_slice] for part_slice in part_slices],
        )

    def Allgather(self, sent: Any, got: Any) -> None:
        """Send `sent` to all members, and receive part i of `got` from member i."""
        sent_bytes, received_bytes = memoryview(sent).cast("B"), memoryview(got).cast("B")
        length = len(sent_bytes)
        received_bytes[self.rank * length : (self.rank + 1) * length] = sent_bytes
        parts = [
            received_bytes[member * length : (member + 1) * length] for member in range(self.size)
        ]
        self._swap_with_members([sent_bytes] * self.size, parts)

    def Bcast(self, values: Any, root: int) -> None:
        """Send `values` of member `root` to all others, which receive them in place."""
        value_bytes = memoryview(values).cast("B")
        if self.rank == root:
            self._swap_with_members([value_bytes] * self.size, [None] * self.size)
        else:
            self._swap_with_members(
                [None] * self.size,
                [value_bytes if member == root else None for member in range(self.size)],
            )

    def Barrier(self) -> None:
        """Wait until all members have called it."""
        self.Allgather(b"!", bytearray(self.size))

    def allgather(self, value: Any) -> list[Any]:
        """Return the values of all members, in order of rank, as JSON can hold them."""
        value_json = json.dumps(value).encode()
        packed_lengths = bytearray(8 * self.size)
        self.Allgather(len(value_json).to_bytes(8, "big"), packed_lengths)
        value_lengths = [
            int.from_bytes(packed_lengths[8 * member : 8 * member + 8], "big")
            for member in range(self.size)
        ]
        value_buffers = [bytearray(length) for length in value_lengths]
        self._swap_with_members(
            [memoryview(value_json)] * self.size,
            [memoryview(buffer) for buffer in value_buffers],
        )
        value_buffers[self.rank] = bytearray(value_json)
        return [json.loads(value_json) for value_json in value_buffers]

    def Free(self) -> None:
        """Forget this world. The links stay open for other worlds."""

    def close(self) -> None:
        """Wait for all members, then close all links."""
        self.Barrier()
        self._net.close()

    def _swap_with_members(
        self,
        send_buffers: Sequence[memoryview | None],
        receive_buffers: Sequence[memoryview | None],
    ) -> None:
        other_members = [member for member in range(self.size) if member != self.rank]
        self._net.swap(
            self._group,
            {
                self._members[member]: send_buffer
                for member in other_members
                if (send_buffer := send_buffers[member]) is not None
            },
            {
                self._members[member]: receive_buffer
                for member in other_members
                if (receive_buffer := receive_buffers[member]) is not None
            },
        )


class _AwakeTimeLimit:
    """A time limit in seconds, without the time in which this process was stopped (Ctrl-Z)."""

    def __init__(self, limit_s: float) -> None:
        self.left, self._last_turn = limit_s, time.monotonic()

    def turn(self) -> bool:
        """Return whether there is time for another turn, of at most _WAIT_TURN_S seconds."""
        now = time.monotonic()
        self.left -= min(now - self._last_turn, 2 * _WAIT_TURN_S)
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
        self._arrivals = Arrivals(listener, lambda _: 4 + _MAC_BYTES, expected=len(places))

    def swap(
        self,
        group: int,
        send_buffers: dict[int, memoryview],
        receive_buffers: dict[int, memoryview],
    ) -> None:
        """Send a message to each peer of `send_buffers` and receive one from each peer of
        `receive_buffers`.

        Both go on at once, so full socket buffers cannot make two instances wait for each other. A
        message begins with its group and its length; other values mean that the instances are in
        different collectives, and raise BackendError. The higher instance of a pair connects and
        the lower one accepts, so a pair has exactly one link.
        """
        unsent_parts = {
            peer: [
                memoryview(group.to_bytes(4, "big") + len(send_buffer).to_bytes(8, "big")),
                send_buffer,
            ]
            for peer, send_buffer in send_buffers.items()
        }
        received_heads = {peer: bytearray(_HEAD_BYTES) for peer in receive_buffers}
        missing_parts = {
            peer: [memoryview(received_heads[peer]), receive_buffer]
            for peer, receive_buffer in receive_buffers.items()
        }
        for peer in {*send_buffers, *receive_buffers}:
            if peer < self.rank and peer not in self._links:
                self._links[peer] = self._connect_to_peer(peer)
        while unsent_parts or missing_parts:
            poll = select.poll()
            peers_by_fd: dict[int, int] = {}
            ready_fds: set[int] = set()
            if any(peer not in self._links for peer in (*unsent_parts, *missing_parts)):
                self._arrivals.register(poll)
            for peer, link in self._links.items():
                poll_events = select.POLLOUT * (peer in unsent_parts) | select.POLLIN * (
                    peer in missing_parts
                )
                if poll_events:
                    peers_by_fd[link.fileno()] = peer
                    poll.register(link, poll_events)
            for fd, poll_event in poll.poll():
                if fd not in peers_by_fd:
                    ready_fds.add(fd)
                    continue
                peer = peers_by_fd[fd]
                if peer in unsent_parts and poll_event & (select.POLLOUT | select.POLLERR):
                    self._send_to_peer(peer, unsent_parts)
                if peer in missing_parts and poll_event & (
                    select.POLLIN | select.POLLERR | select.POLLHUP
                ):
                    self._receive_from_peer(
                        peer, missing_parts, received_heads[peer], group, len(receive_buffers[peer])
                    )
            if ready_fds:
                self._take_links(ready_fds)

    def _send_to_peer(self, peer: int, unsent_parts: dict[int, list[memoryview]]) -> None:
        peer_parts = unsent_parts[peer]
        with self._peer_gone_errors(peer), contextlib.suppress(BlockingIOError):
            count = self._links[peer].sendmsg(peer_parts)
            while peer_parts and count >= len(peer_parts[0]):
                count -= len(peer_parts.pop(0))
            if peer_parts:
                peer_parts[0] = peer_parts[0][count:]
        if not peer_parts:
            del unsent_parts[peer]

    def _receive_from_peer(
        self,
        peer: int,
        missing_parts: dict[int, list[memoryview]],
        received_head: bytearray,
        group: int,
        message_length: int,
    ) -> None:
        peer_parts = missing_parts[peer]
        with self._peer_gone_errors(peer), contextlib.suppress(BlockingIOError):
            received_count = self._links[peer].recv_into(peer_parts[0]) if len(peer_parts[0]) else 0
            if not received_count and len(peer_parts[0]):
                raise ConnectionResetError("it closed the link")
            peer_parts[0] = peer_parts[0][received_count:]
            if not len(peer_parts[0]):
                peer_parts.pop(0)
                expected_head = group.to_bytes(4, "big") + message_length.to_bytes(8, "big")
                if peer_parts and bytes(received_head) != expected_head:
                    raise BackendError(
                        f"instances {self.rank} and {peer} are in different collectives: every "
                        "instance must call the same ones in the same order"
                    )
                if peer_parts and not len(peer_parts[0]):
                    peer_parts.pop(0)
        if not peer_parts:
            del missing_parts[peer]

    @contextlib.contextmanager
    def _peer_gone_errors(self, peer: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackendError(f"instance {peer} has gone: {error.strerror or error}") from None

    def _connect_to_peer(self, peer: int) -> socket.socket:
        host, port, nonce = self._places[peer]
        with self._peer_gone_errors(peer):
            link = socket.create_connection((host, port), LINK_LIMIT_S)
            rank_bytes = self.rank.to_bytes(4, "big")
            link.sendall(
                rank_bytes + _proof(self._secret, b"link", bytes.fromhex(nonce), rank_bytes)
            )
        return _prepare_link(link)

    def _take_links(self, ready_fds: set[int]) -> None:
        """Accept links from higher instances. A link without a valid proof is closed."""
        nonce = bytes.fromhex(self._places[self.rank][2])
        for link, _, greeting in self._arrivals.hear(ready_fds):
            rank_bytes, proof = greeting[:4], greeting[4:]
            peer = int.from_bytes(rank_bytes, "big")
            if hmac.compare_digest(proof, _proof(self._secret, b"link", nonce, rank_bytes)) and (
                self.rank < peer < len(self._places) and peer not in self._links
            ):
                self._links[peer] = _prepare_link(link)
            else:
                link.close()

    def close(self) -> None:
        """Close all links."""
        self._arrivals.close()
        for link in (*self._links.values(), self._listener):
            link.close()


def join(
    rank: int, size: int, address: str, port: int, secret: bytes, within: float = MEET_LIMIT_S
) -> World:
    """Meet all instances at instance 0's address. within: seconds. Raises BackendError."""
    time_limit = _AwakeTimeLimit(within)
    link_nonce = os.urandom(_NONCE_BYTES).hex()
    try:
        if rank == 0:
            net = _host_meeting(size, address, port, secret, link_nonce, time_limit)
        else:
            net = _join_meeting(
                rank, size, address, port, secret, link_nonce, time_limit=time_limit
            )
    except OSError as error:
        raise BackendError(
            f"instance {rank} cannot meet the others at {address} port {port}: "
            f"{error.strerror or error}"
        ) from None
    return World(net, tuple(range(size)))


def _host_meeting(
    size: int, address: str, port: int, secret: bytes, link_nonce: str, time_limit: _AwakeTimeLimit
) -> _Net:
    address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    with contextlib.ExitStack() as exit_stack:
        listener = exit_stack.enter_context(_open_listener(address, 0, address_family, size))
        address_entry = (address, listener.getsockname()[1], link_nonce)
        with _open_listener(address, port, address_family, size) as meeting_socket:
            guests = _gather_guests(meeting_socket, size, secret, time_limit)
        for _, guest_socket in guests.values():
            exit_stack.enter_context(guest_socket)
        places = [address_entry, *(guests[rank][0] for rank in range(1, size))]
        places_json = json.dumps(places).encode()
        for place, guest_socket in guests.values():
            guest_socket.sendall(_proof(secret, b"list", bytes.fromhex(place[2]), places_json))
            guest_socket.sendall(len(places_json).to_bytes(8, "big") + places_json)
            guest_socket.close()
        exit_stack.pop_all()
    return _Net(0, places, listener, secret)


def _open_listener(address: str, port: int, address_family: int, size: int) -> socket.socket:
    # The backlog has room for strangers too: a full one would keep the other instances out.
    return socket.create_server(
        (address, port), family=address_family, backlog=max(size, MAX_STRANGERS)
    )


def _gather_guests(
    meeting_socket: socket.socket, size: int, secret: bytes, time_limit: _AwakeTimeLimit
) -> dict[int, tuple[Place, socket.socket]]:
    """Return all other instances by rank, once all have come. Raises BackendError."""
    guests: dict[int, tuple[Place, socket.socket]] = {}
    arrivals = Arrivals(
        meeting_socket, _greeting_length, lambda: os.urandom(_NONCE_BYTES), expected=size
    )
    with contextlib.closing(arrivals):
        while len(guests) < size - 1:
            if not time_limit.turn():
                for _, guest_socket in guests.values():
                    guest_socket.close()
                missing_ranks = sorted(set(range(1, size)) - set(guests))
                raise BackendError(f"these instances never came: {missing_ranks}")
            poll = select.poll()
            arrivals.register(poll)
            ready_fds = {fd for fd, _ in poll.poll(min(time_limit.left, _WAIT_TURN_S) * 1000)}
            for guest_socket, nonce, greeting_bytes in arrivals.hear(ready_fds):
                rank_and_place = _read_greeting(nonce, greeting_bytes, secret, size)
                if rank_and_place is None or rank_and_place[0] in guests:
                    guest_socket.close()
                else:
                    guest_socket.settimeout(LINK_LIMIT_S)
                    guests[rank_and_place[0]] = (rank_and_place[1], guest_socket)
    return guests


def _greeting_length(received_bytes: bytes) -> int:
    """Return the bytes of a greeting: an HMAC, a length of two bytes, and the JSON text."""
    head_length = _MAC_BYTES + 2
    return (
        head_length
        if len(received_bytes) < head_length
        else head_length + int.from_bytes(received_bytes[_MAC_BYTES:head_length], "big")
    )


def _read_greeting(
    nonce: bytes, greeting: bytes, secret: bytes, size: int
) -> tuple[int, Place] | None:
    """Return the rank of a visitor and where it listens, or None if it does not know the secret."""
    proof, greeting_json = greeting[:_MAC_BYTES], greeting[_MAC_BYTES + 2 :]
    if not hmac.compare_digest(proof, _proof(secret, b"here", nonce, greeting_json)):
        return None
    try:
        fields = json.loads(greeting_json)
        place = (
            str(fields["host"]),
            int(fields["port"]),
            bytes.fromhex(fields["number"]).hex(),
        )
        rank = int(fields["rank"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (rank, place) if fields["size"] == size and 0 < rank < size else None


def _join_meeting(
    rank: int,
    size: int,
    address: str,
    port: int,
    secret: bytes,
    link_nonce: str,
    *,
    time_limit: _AwakeTimeLimit,
) -> _Net:
    while True:
        try:
            meeting_socket = socket.create_connection((address, port), _WAIT_TURN_S)
            break
        except OSError:
            if not time_limit.turn():
                raise
            time.sleep(0.02)
    with meeting_socket, contextlib.ExitStack() as exit_stack:
        own_address = meeting_socket.getsockname()[0]
        listener = exit_stack.enter_context(
            _open_listener(own_address, 0, meeting_socket.family, size)
        )
        greeting_fields = {"rank": rank, "size": size, "host": own_address, "number": link_nonce}
        greeting_json = json.dumps({**greeting_fields, "port": listener.getsockname()[1]}).encode()
        proof = _proof(
            secret,
            b"here",
            _receive_exactly(meeting_socket, _NONCE_BYTES, time_limit),
            greeting_json,
        )
        meeting_socket.sendall(proof + len(greeting_json).to_bytes(2, "big") + greeting_json)
        proof = _receive_exactly(meeting_socket, _MAC_BYTES, time_limit)
        list_length = int.from_bytes(_receive_exactly(meeting_socket, 8, time_limit), "big")
        list_json = _receive_exactly(meeting_socket, min(list_length, _MAX_LIST_BYTES), time_limit)
        if not hmac.compare_digest(
            proof, _proof(secret, b"list", bytes.fromhex(link_nonce), list_json)
        ):
            raise BackendError(
                f"what listens at {address} port {port} is not instance 0 of this run"
            )
        exit_stack.pop_all()
    return _Net(rank, [tuple(place) for place in json.loads(list_json)], listener, secret)


def _proof(secret: bytes, purpose: bytes, nonce: bytes, message: bytes) -> bytes:
    return hmac.digest(secret, purpose + nonce + message, hashlib.sha256)


def _receive_exactly(
    connection: socket.socket, byte_count: int, time_limit: _AwakeTimeLimit
) -> bytes:
    received = b""
    while len(received) < byte_count:
        try:
            chunk = connection.recv(byte_count - len(received))
        except TimeoutError:  # the socket's timeout of _WAIT_TURN_S seconds is over
            if not time_limit.turn():
                raise
            continue
        if not chunk:
            raise ConnectionResetError("the other side hung up")
        received += chunk
    return received


def _prepare_link(link: socket.socket) -> socket.socket:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    return link
