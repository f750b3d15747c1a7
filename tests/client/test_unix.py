"""Calls over a Unix socket: the bytes, the repetitions, and the handling of strangers."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from podwright.client import Client, UnixTransport
from podwright.errors import Held, NoCapacity, TimedOut, Unavailable
from podwright.wire import PartitionInfo, PartitionSpec, ReadyState
from tests.client.stub import http, stub

P1 = {
    "name": "p1",
    "cluster": "pod16",
    "allocation": "pod16",
    "size": 4,
    "num_gcds": 1,
    "num_replicas": 1,
    "num_ilds": 1,
    "routing": "DNC",
    "gw_routing": "DEFAULT",
    "sync_type": "DEFAULT",
    "ready_state": "ACTIVE",
    "gcds": [[{"domain": 0, "offset": offset} for offset in range(4)]],
}


def client(path: Path | str, timeout: float = 120.0) -> Client:
    return Client(UnixTransport(str(path)), timeout=timeout)


def test_values_arrive_whole_and_the_connection_is_kept(tmp_path: Path) -> None:
    with stub(tmp_path / "s", lambda *_: http(P1)) as server, client(server.path) as ours:
        made = ours.create_partition(PartitionSpec(name="p1", size=4, devices=[(0, 1), (0, 2)]))
        again = ours.get_partition("p1")
    assert isinstance(made, PartitionInfo)
    assert (made.name, made.ready_state) == ("p1", ReadyState.ACTIVE)
    assert again == made
    assert server.connections == 1
    assert server.calls == [
        ("CreatePartition", {"spec": {"name": "p1", "size": 4, "devices": [[0, 1], [0, 2]]}}),
        ("GetPartition", {"name": "p1"}),
    ]


def test_threads_that_share_a_client_get_each_its_own_answer(tmp_path: Path) -> None:
    def echo(name: str, body: dict[str, Any]) -> bytes:
        return http({**P1, "name": body["name"]})

    with stub(tmp_path / "s", echo) as server, client(server.path) as ours:

        def name_again(name: str) -> str:
            return ours.get_partition(name).name

        names = [f"p{n}" for n in range(200)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(name_again, names)) == names
    assert server.connections == 1


def test_a_large_answer_arrives_whole(tmp_path: Path) -> None:
    many = {"partitions": [{**P1, "name": f"p{n}"} for n in range(20_000)]}
    with stub(tmp_path / "s", lambda *_: http(many)) as server, client(server.path) as ours:
        assert [p.name for p in ours.list_partitions()] == [f"p{n}" for n in range(20_000)]


def test_a_refusal_keeps_its_type_and_data(tmp_path: Path) -> None:
    refusal = Held("u2 holds it", operation="reset partition p1", would_work="wait", holder="u2")
    with (
        stub(tmp_path / "s", lambda *_: http(refusal.to_json(), 412)) as server,
        client(server.path) as ours,
    ):
        with pytest.raises(Held) as caught:
            ours.reset_partition("p1")
        with pytest.raises(Held):
            ours.get_partition("p1")
    assert caught.value.message == refusal.message
    assert caught.value.data == {"holder": "u2"}
    assert server.connections == 1


def test_a_refusal_of_unknown_type_becomes_that_of_its_code(tmp_path: Path) -> None:
    body = {"code": "RESOURCE_EXHAUSTED", "message": "no room", "type": "FromTheFuture"}
    with (
        stub(tmp_path / "s", lambda *_: http(body, 429)) as server,
        client(server.path) as ours,
        pytest.raises(NoCapacity, match="no room"),
    ):
        ours.list_leases()


def test_a_connection_that_went_stale_is_replaced_unseen(tmp_path: Path) -> None:
    with stub(tmp_path / "s", lambda *_: http(P1)) as server, client(server.path) as ours:
        ours.get_partition("p1")
        server.drop_connections()
        ours.create_partition(PartitionSpec(name="p1", size=4))
        assert server.connections == 2
        assert [name for name, _ in server.calls] == ["GetPartition", "CreatePartition"]


class Vanishing:
    """Answers the first call on a connection and vanishes at the second, `times` times."""

    def __init__(self, times: int = 1) -> None:
        self.left = times
        self.seen = 0

    def __call__(self, name: str, body: dict[str, Any]) -> bytes | None:
        self.seen += 1
        if self.seen > 1 and self.left:
            self.left -= 1
            return None
        return http({"id": "l1", "partition": "p1", "epoch": 1} if name == "Renew" else P1)


def test_a_reading_call_is_sent_again_once(tmp_path: Path) -> None:
    with stub(tmp_path / "s", Vanishing()) as server, client(server.path) as ours:
        ours.get_partition("p1")
        assert ours.get_partition("p1").name == "p1"
        assert len(server.calls) == 3
    with stub(tmp_path / "t", Vanishing(2)) as server, client(server.path) as ours:
        ours.get_partition("p1")
        with pytest.raises(Unavailable, match="Try again when it runs"):
            ours.get_partition("p1")
        assert len(server.calls) == 3


def test_a_renewal_may_be_sent_twice(tmp_path: Path) -> None:
    with stub(tmp_path / "s", Vanishing()) as server, client(server.path) as ours:
        ours.renew("l1", 1)
        assert ours.renew("l1", 1).epoch == 1
        assert len(server.calls) == 3


def test_a_changing_call_is_never_sent_twice(tmp_path: Path) -> None:
    with stub(tmp_path / "s", Vanishing()) as server, client(server.path) as ours:
        ours.get_partition("p1")
        with pytest.raises(Unavailable, match="is not known; look before asking again"):
            ours.create_partition(PartitionSpec(name="p1", size=4))
        assert [name for name, _ in server.calls] == ["GetPartition", "CreatePartition"]


def test_a_server_that_closes_after_each_answer_is_served(tmp_path: Path) -> None:
    closing = http(P1, headers="Connection: close\r\n")
    with stub(tmp_path / "s", lambda *_: closing) as server, client(server.path) as ours:
        ours.get_partition("p1")
        ours.create_partition(PartitionSpec(name="p1", size=4))
        assert server.connections == 2


def test_a_server_that_hangs_costs_the_time_out_and_no_more(tmp_path: Path) -> None:
    go_on = threading.Event()

    def hang(name: str, body: dict[str, Any]) -> bytes:
        go_on.wait(300)
        return http(P1)

    with stub(tmp_path / "s", hang) as server, client(server.path, timeout=0.1) as ours:
        with pytest.raises(TimedOut, match=r"gave no answer within 0\.1 s"):
            ours.get_partition("p1")
        with pytest.raises(TimedOut, match="may still be under way"):
            ours.remove_partition("p1")
        go_on.set()


def test_a_server_that_accepts_nobody_costs_the_time_out_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for other in waiting:
            other.setblocking(False)
            other.connect_ex(str(tmp_path / "s"))
        with pytest.raises(TimedOut):
            client(tmp_path / "s", timeout=0.1).get_partition("p1")
        for other in waiting:
            other.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        http({"name": "p1"}),
        http({"oops": 1}, 500),
        b"x" * 70_000,
    ],
)
def test_a_stranger_is_named_as_one(tmp_path: Path, answer: bytes) -> None:
    with (
        stub(tmp_path / "s", lambda *_: answer) as server,
        client(server.path) as ours,
        pytest.raises(Unavailable, match="is not a server of Podwright's"),
    ):
        ours.get_partition("p1")


def test_a_path_without_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no server answers at .*/s \(no such file"):
        client(tmp_path / "s").get_partition("p1")


def test_after_a_failure_the_next_call_starts_anew(tmp_path: Path) -> None:
    answers = iter([b"nonsense\r\n\r\n", http(P1)])
    with stub(tmp_path / "s", lambda *_: next(answers)) as server, client(server.path) as ours:
        with pytest.raises(Unavailable):
            ours.get_partition("p1")
        assert ours.get_partition("p1").name == "p1"
