"""V-IPU's own protocol, without TLS or a key, reaches a secure server in a user's name."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from podwright.client import Address, Client, PortForwarder, UnixTransport
from podwright.hosts import tcp_owner
from podwright.wire import UserRequest
from tests.certificates import EXPIRED, SERVER, folder_of
from tests.whole.conftest import BIN, Pod

#: As V-IPU's clients call: an address and a port from the environment, no TLS, no metadata.
CLIENT = """
import grpc, os, sys
from podwright.wire import virm
host, port = os.environ["IPUOF_VIPU_API_HOST"], os.environ["VIPU_CLI_API_PORT"]
method = virm.VIRM_METHODS["CreatePartition"]
with grpc.insecure_channel(f"{host}:{port}") as channel:
    call = channel.unary_unary(
        method.path, method.request.SerializeToString, method.reply.FromString
    )
    try:
        call(method.request(requirements={"id": "theirs", "size": 4}), timeout=60)
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
sys.exit(7)
"""

#: The protocol of netlink by which the kernel answers about sockets (linux/netlink.h).
NETLINK_SOCK_DIAG = 4


@pytest.fixture
def secure(make_pod: Callable[..., Pod]) -> tuple[Pod, str]:
    """A secure server with a user, and its address."""
    pod = make_pod("--preset", "pod16", "--secure", "--tls-certs", str(SERVER))
    with Client(UnixTransport(str(pod.socket))) as client:
        client.call("CreateUser", UserRequest(name="alice"))
        port = client.get_server_info().port
    del pod.environ["PODWRIGHT_SOCKET"]
    return pod, f"127.0.0.1:{port}"


def test_a_program_of_the_vendors_calls_in_its_users_name(secure: tuple[Pod, str]) -> None:
    pod, address = secure
    proxy = ("podwright", "proxy", "-H", address, "--tls-certs")
    client = ("--", sys.executable, "-c", CLIENT)
    ran = pod.run(*proxy, folder_of("alice"), *client)
    assert (ran.code, ran.err) == (7, ""), ran
    with Client(UnixTransport(str(pod.socket))) as chief:
        assert chief.get_partition("theirs").owner == "alice"
    own = pod.run(*proxy, folder_of("alice"), "--", BIN / "vipu", "list", "partitions")
    assert (own.code, "theirs" in own.out) == (0, True), own
    stranger = pod.run(*proxy, folder_of("bob"), *client)
    assert (stranger.code, "UNAUTHENTICATED" in stranger.err) == (1, True), stranger
    late = pod.run(*proxy, EXPIRED, *client)
    assert (late.code, "UNAVAILABLE" in late.err) == (1, True), late


def test_what_cannot_be_is_said(shared16: Pod) -> None:
    for words, said in (
        ([], "there is no command to run"),
        (["-H", "127.0.0.1", "true"], "no certificate is named"),
        (["--tls-certs", str(SERVER), "true"], "no server is named"),
        (["-H", "127.0.0.1", "--tls-certs", "/nowhere", "true"], "cannot read /nowhere/ca.pem"),
        (
            ["-H", "x", "--tls-certs", str(SERVER), "/no/such"],
            "cannot run /no/such: no such file",
        ),
    ):
        ran = shared16.run("podwright", "proxy", *words)
        assert (ran.code, said in ran.err) == (2, True), ran


async def test_another_users_program_is_not_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = Address("127.0.0.1", nobody.getsockname()[1])
        forwarder = PortForwarder([address], str(folder_of("alice")), heard.append)
        port = await forwarder.start()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await forwarder.stop()
    assert heard == [f"a program of user {os.getuid()} tried this port; it was not let through"]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_says_whose_a_connection_is(family: socket.AddressFamily) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as ours:
        host, port = server.getsockname()
        ours.connect((host if family is socket.AF_INET else f"::ffff:{host}", port))
        theirs, _ = server.accept()
        with theirs:
            assert tcp_owner(theirs) == os.getuid()
            ours.shutdown(socket.SHUT_WR)
            assert theirs.recv(1) == b""
            assert tcp_owner(theirs) is None


def kernel_sockets() -> set[str]:
    """The sockets by which this process asks the kernel about sockets (sock_diag(7)).

    Other descriptors of the process come and go, since pytest's workers have threads of their own.
    """
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(descriptor.readlink()))
    lines = [line.split() for line in Path("/proc/net/netlink").read_text().splitlines()[1:]]
    return own & {f"socket:[{words[9]}]" for words in lines if words[1] == str(NETLINK_SOCK_DIAG)}


@pytest.mark.filterwarnings("error")
def test_a_thread_that_asked_the_kernel_leaves_nothing_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()[:2]) as ours,
    ):
        before = kernel_sockets()
        meanwhile: list[set[str]] = []

        def ask() -> None:
            tcp_owner(ours)
            meanwhile.append(kernel_sockets())

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        gc.collect()  # pytest tells of a socket that was forgotten
        assert [len(sockets - before) for sockets in meanwhile] == [1]
        assert kernel_sockets() == before
