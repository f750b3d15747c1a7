"""The Unix socket: every call as JSON, every refusal its status, and no input that fells it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import stat
from pathlib import Path

import pytest

from podwright import wire
from podwright.controller import Role
from podwright.http import STATUS_BY_CODE, Limits
from podwright.server import ListenOptions, Server
from tests.server.fakes import FakeController, Http, as_controller

MAX_BODY, MAX_HEAD = Limits().body, Limits().head
SPEC = wire.PartitionSpec(name="p1", size=1)


async def test_every_call_reaches_the_controller(http: Http, controller: FakeController) -> None:
    requests: dict[str, wire.Value] = {
        "CreatePartition": wire.CreateRequest(spec=SPEC),
        "GetPartition": wire.PartitionName(name="p1"),
        "ResetPartition": wire.ResetRequest(name="p1", force=True),
        "RemovePartition": wire.RemoveRequest(name="p1"),
        "Acquire": wire.AcquireRequest(spec=SPEC),
        "Renew": wire.LeaseRequest(id="l1", epoch=3),
        "Release": wire.LeaseRequest(id="l1", epoch=3),
        **{f"List{what}": wire.ListRequest() for what in ("Clusters", "Allocations", "Devices")},
        **{f"List{what}": wire.ListRequest() for what in ("Partitions", "Leases")},
    }
    for name, request in requests.items():
        controller.requests.clear()
        reply = await http.call(name, request)
        assert type(reply) is wire.METHODS[name].reply
        assert controller.requests[0] == request
    assert set(requests) <= set(wire.METHODS)


async def test_server_info_says_who_serves_whom(http: Http, server: Server) -> None:
    info = await http.call("GetServerInfo", wire.ServerInfoRequest())
    assert info == wire.ServerInfo(
        version=info.version,
        apis=["virmgrpc", "podwright.v1"],
        host="127.0.0.1",
        port=server.port,
        caller=info.caller,
        role="administrator",
        simulated=True,
        pid=os.getpid(),
        clusters=["pod4"],
        counters={"calls": 1},
    )
    assert server.port > 0
    assert info.version


async def test_an_empty_body_means_all_defaults(http: Http) -> None:
    assert (await http.post("ListPartitions"))[0] == 200


REFUSALS = [
    wire.InvalidRequest,
    wire.NotFound,
    wire.AlreadyExists,
    wire.NoCapacity,
    wire.Held,
    wire.WrongState,
    wire.Denied,
    wire.Unauthenticated,
    wire.Fenced,
    wire.Unavailable,
    wire.TimedOut,
    wire.Internal,
]


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_refusal_arrives_unchanged(
    http: Http, controller: FakeController, kind: type[wire.PodwrightError]
) -> None:
    controller.fail["renew"] = kind(
        "a problem", operation="renew", would_work="this", holder="alice"
    )
    status, body = await http.post("Renew", wire.LeaseRequest(id="l", epoch=1))
    assert status == STATUS_BY_CODE[kind.code]
    assert body == controller.fail["renew"].to_json()  # type: ignore[attr-defined]
    assert type(wire.error_from_json(body)) is kind


async def test_a_fault_of_ours_says_nothing_of_its_inside(
    http: Http, controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.fail["renew"] = ZeroDivisionError("secret")
    status, body = await http.post("Renew", wire.LeaseRequest(id="l", epoch=1))
    assert status == 500
    assert "secret" not in json.dumps(body)
    assert "ZeroDivisionError: secret" in caplog.text


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, "ok"),
        (b"POST /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 405, "GET it"),
        (b"GET /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\n\r\n", 405, "POST to it"),
        (b"POST /podwright.v1/renew HTTP/1.1\r\nHost: x\r\n\r\n", 404, "there is no"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404, "there is no /"),
        (b"GET /%00\xc3 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "Invalid char in url"),
        (b"nonsense\r\n\r\n", 400, "Invalid method"),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
            "Content-Length",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            400,
            "Transfer-Encoding",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "Content-Length"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * MAX_HEAD * 2, 431, "long"),
        (
            b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n",
            413,
            "1048576 bytes",
        ),
        (b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\n\r\n", 400, "missing required field"),
        (
            b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n{{}}",
            400,
            "malformed",
        ),
        (
            b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n\xff",
            400,
            "Renew: ",
        ),
        (
            b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\n"
            b'{"id":"l","epoch":""}',
            400,
            "Renew: ",
        ),
        (
            b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n"
            + b"[" * 90000,
            400,
            "Renew: ",
        ),
    ],
)
async def test_malformed_requests_are_refused(
    http: Http, sent: bytes, status: int, says: str
) -> None:
    got, headers, body = await http.raw(sent)
    assert got == status
    assert says in body.decode()
    assert json.loads(body)
    assert headers["content-type"] == "application/json"
    if status in (405,):
        assert headers["allow"] in ("GET", "POST")


async def test_a_head_that_trickles_in_has_an_end(http: Http) -> None:
    http.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for number in range(MAX_HEAD // 8):
        http.writer.write(b"A%d: aaaa\r\n" % number)
    assert (await http.answer())[0] == 431


async def test_who_says_close_is_closed(http: Http, server: Server) -> None:
    status, headers, _ = await http.raw(
        b"POST /podwright.v1/ListLeases HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert (status, headers["connection"]) == (200, "close")
    assert await http.reader.read() == b""


async def test_there_is_no_other_protocol(http: Http) -> None:
    status, headers, _ = await http.raw(
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    )
    assert (status, headers["connection"]) == (200, "close")


async def test_who_goes_in_the_middle_is_told_so(http: Http) -> None:
    http.writer.write(b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
    http.writer.write_eof()
    status, headers, body = await http.answer()
    assert (status, headers["connection"]) == (400, "close")
    assert b"in the middle" in body


async def test_a_body_in_chunks_counts_too(http: Http) -> None:
    head = b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"id": "l", "epoch": 2}'
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    assert (await http.raw(head + chunked))[0] == 200
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    status, headers, _ = await http.raw(head + chunk * (MAX_BODY // 65536 + 1))
    assert status == 413
    assert headers["connection"] == "close"


async def test_requests_in_one_go_are_answered_in_order(http: Http) -> None:
    one = b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\n"
    http.writer.write(b"".join(one + b'{"id":"%d","epoch":11}' % n for n in range(9)))
    ids = [json.loads((await http.answer())[2])["id"] for _ in range(9)]
    assert ids == [str(n) for n in range(9)]


async def test_a_client_that_asks_first_is_told_to_go_on(http: Http) -> None:
    head = b"POST /podwright.v1/ListLeases HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
    status, _, _ = await http.raw(head + b"Expect: 100-continue\r\n\r\n")
    assert status == 100
    assert (await http.raw(b"{}"))[0] == 200


async def test_silent_connections_are_closed_and_busy_ones_are_not(
    controller: FakeController, folder: Path
) -> None:
    controller.hold["renew"] = asyncio.Event()
    now = 0.0
    running = Server(
        as_controller(controller),
        ListenOptions(folder / "s", host=None, idle=1.0),
        clock=lambda: now,
    )
    await running.start()
    silent, half, busy = [await Http.connect(folder / "s") for _ in range(3)]
    half.writer.write(b"POST /podwright.v1/Renew HTTP/1.1\r\n")
    answer = asyncio.create_task(busy.post("Renew", wire.LeaseRequest(id="l", epoch=1)))
    async with asyncio.timeout(120):
        while not controller.callers or len(running._http.door.visitors) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    now = 2.0
    for client in (silent, half):
        with pytest.raises((EOFError, OSError)):
            await asyncio.wait_for(client.answer(), 120)
    assert not answer.done()
    controller.hold["renew"].set()
    assert (await answer)[0] == 200
    for client in (silent, half, busy):
        client.close()
    await running.stop(1)


async def test_one_uid_may_not_open_all_connections(
    server: Server, controller: FakeController
) -> None:
    """A served caller keeps its place, and a silent one makes room."""
    visitors = server._http.door.visitors
    visitors.each = 2
    assert server.socket_path is not None
    held = controller.hold["renew"] = asyncio.Event()
    clients = [await Http.connect(server.socket_path) for _ in range(2)]
    request = wire.LeaseRequest(id="l", epoch=1)
    calls = [asyncio.create_task(client.post("Renew", request)) for client in clients]
    async with asyncio.timeout(120):
        while len(controller.callers) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    third = await Http.connect(server.socket_path)
    status, headers, body = await third.answer()
    assert (status, headers["connection"]) == (503, "close")
    assert b"more than 2 connections of one caller" in body
    held.set()
    assert [status for status, _ in await asyncio.gather(*calls)] == [200, 200]
    visitors._patience = -1.0
    fourth = await Http.connect(server.socket_path)
    assert (await fourth.post("ListLeases"))[0] == 200
    assert visitors.evicted == 1
    for client in (*clients, third, fourth):
        client.close()


async def test_trailers_have_an_end(http: Http) -> None:
    head = b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    http.writer.write(head + b"15\r\n" + b'{"id":"l","epoch":11}' + b"\r\n0\r\n")
    for number in range(MAX_HEAD // 8):
        http.writer.write(b"T%d: aaaa\r\n" % number)
    assert (await http.answer())[0] == 431


async def test_one_header_without_end_is_not_kept(http: Http) -> None:
    """The parser reports a header only once it is complete."""
    http.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
    for _ in range(64):
        http.writer.write(b"a" * 65536)
    assert (await http.answer())[0] == 431


async def test_tiny_chunks_do_not_grow_beside_their_body(http: Http) -> None:
    head = b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    http.writer.write(head)
    for _ in range(64):
        http.writer.write(b"1;%s\r\n \r\n" % (b"x" * 8000))
    assert (await http.answer())[0] == 431


async def test_all_bodies_together_have_a_limit(server: Server, http: Http) -> None:
    """Sixty bodies that never end use no more memory than a few of them."""
    door = server._http.door
    assert server.socket_path is not None
    head = b"POST /podwright.v1/Renew HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n"
    clients = [await Http.connect(server.socket_path) for _ in range(120)]
    for client in clients:
        client.writer.write(head + bytes(1048575))
    answers = asyncio.gather(*(client.answer() for client in clients), return_exceptions=True)
    async with asyncio.timeout(120):
        while door.all_bodies < door.limits.all_bodies - 2 * MAX_BODY:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert (await http.post("ListLeases"))[0] == 200
    assert door.all_bodies <= door.limits.all_bodies + MAX_BODY
    for client in clients:
        client.close()
    await answers
    async with asyncio.timeout(120):
        while door.all_bodies:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_the_socket_is_as_private_as_told(server: Server) -> None:
    assert server.socket_path is not None
    assert stat.S_IMODE(server.socket_path.stat().st_mode) == 0o666


async def test_thousands_of_mutated_requests(
    http: Http, server: Server, controller: FakeController
) -> None:
    """Each connection gets an answer or an end; the server answers the next one as ever."""
    assert server.socket_path is not None
    rng = random.Random(20260)
    good = (
        b"POST /podwright.v1/CreatePartition HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\n"
        b'{"spec": {"name": "p", "size": 4}}  '
    )

    async def one(data: bytes) -> int:
        client = await Http.connect(server.socket_path or Path())
        try:
            client.writer.write(data)
            client.writer.write_eof()
            head = await asyncio.wait_for(client.reader.read(), 120)
            return int(head.split(b" ")[1]) if head else 0
        except OSError:
            return 0
        finally:
            client.close()

    seen: set[int] = set()
    for _ in range(100):
        batch = []
        for _ in range(30):
            data = bytearray(good)
            for _ in range(rng.randint(1, 6)):
                where = rng.randrange(len(data))
                match rng.randrange(3):
                    case 0:
                        data[where] = rng.randrange(256)
                    case 1:
                        del data[where : where + rng.randint(1, 20)]
                    case 2:
                        data[where:where] = rng.randbytes(rng.randint(1, 20))
                data = data or bytearray(b"\n")
            batch.append(one(bytes(data)))
        seen.update(await asyncio.gather(*batch))
        controller.partitions.clear()
        controller.requests.clear()
        controller.callers.clear()
    assert {200, 400, 404} <= seen
    assert 500 not in seen
    assert (await http.post("ListLeases"))[0] == 200
    assert all(caller.role is Role.ADMINISTRATOR for _, caller in controller.callers)


async def test_a_reader_that_never_reads_holds_nobody_up(
    http: Http, server: Server, controller: FakeController
) -> None:
    """A deaf client's answers fill its buffer; others are served meanwhile."""
    assert server.socket_path is not None
    deaf = await Http.connect(server.socket_path)
    deaf.writer.write(b"POST /podwright.v1/ListDevices HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)
    for _ in range(5):
        assert (await http.post("ListLeases"))[0] == 200
    deaf.close()
