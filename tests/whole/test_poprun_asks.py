"""poprun and a server: a query without a start, a wait in the queue, and a server without
leases.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from podwright.client import Client, UnixTransport
from podwright.wire import virm
from tests.whole.conftest import Pod

DRY = ("poprun", "--dry-run=server", "--launcher=local")
RUN = ("poprun", "--launcher=local", "--grace=1")


def test_a_dry_run_asks_whether_a_launch_would_be_granted(shared16: Pod) -> None:
    ran = shared16.run(*DRY, "--num-replicas=8", "--num-instances=2", "nothing")
    assert ran.code == 0, ran
    assert "the server would grant it now:\n  server " in ran.out
    assert "a partition would be created\n" in ran.out
    assert shared16.partitions() == {}
    assert shared16.json("vipu", "list", "leases") == []

    shared16.good("vipu", "create", "partition", "p8", "--size", "8")
    ran = shared16.run(*DRY, "--vipu-partition=p8", "--num-replicas=8", "t")
    assert "partition p8 fits, and its devices are free to be used" in ran.out
    wrong = (*DRY, "--vipu-partition=p8", "--num-replicas=4", "t")
    ran = shared16.run(*wrong)
    assert ran.code == 75, ran
    assert "the server would not grant it now:" in ran.out
    assert "size 8 instead of 4" in ran.out
    ran = shared16.run(*wrong[:1], "--update-partition=yes", *wrong[1:])
    assert "partition p8 does not fit, and would be replaced" in ran.out
    # The same as the launch would hear.
    ran = shared16.run(*DRY, "--vipu-partition=other", "--num-replicas=16", "t")
    assert ran.code == 75, ran
    assert "p8" in ran.out
    assert list(shared16.partitions()) == ["p8"]


def test_a_dry_run_without_a_server_says_so(shared16: Pod) -> None:
    ran = shared16.run(*DRY, "t", environ={"PODWRIGHT_SOCKET": str(shared16.folder / "none")})
    assert ran.code == 69, ran
    ran = shared16.run(*DRY, "--offline-mode=yes", "t")
    assert ran.code == 2
    assert "--offline-mode asks none" in ran.err


@pytest.fixture
def holder(shared16: Pod) -> Iterator[subprocess.Popen[str]]:
    """A launch that has the whole pod until it is asked to end."""
    held = subprocess.Popen(
        [*RUN, "--num-replicas=16", "sh", "-c", "echo up; sleep 600"],
        env=shared16.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert held.stdout
    assert held.stdout.readline().endswith("up\n")
    yield held
    if held.poll() is None:
        held.kill()
    held.communicate()


def waiting(pod: Pod, *words: str) -> subprocess.Popen[str]:
    """A launch that is in the queue."""
    found = subprocess.Popen(
        [*RUN, "--vipu-wait", "--num-replicas=16", *words],
        env=pod.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert found.stderr
    line = found.stderr.readline()
    assert "POPRUN: place 1 in the queue" in line, line + found.stderr.read()
    return found


def test_a_launch_waits_for_its_turn(shared16: Pod, holder: subprocess.Popen[str]) -> None:
    assert shared16.run(*RUN, "--num-replicas=16", "true").code == 75
    next_one = waiting(shared16, "echo", "here")
    holder.send_signal(signal.SIGTERM)
    out, err = next_one.communicate(timeout=300)
    assert next_one.returncode == 0, err
    assert out == "[1,0]<stdout>: here\n"
    assert shared16.partitions() == {}


@pytest.mark.parametrize("how", ["signal", "timeout"])
def test_a_launch_that_ends_has_left_the_line(
    shared16: Pod, holder: subprocess.Popen[str], how: str
) -> None:
    own = ("--timeout=0.5",) if how == "timeout" else ()
    next_one = waiting(shared16, *own, "true")
    if how == "signal":
        next_one.send_signal(signal.SIGINT)
    _, err = next_one.communicate(timeout=300)
    assert next_one.returncode == (130 if how == "signal" else 124), err
    assert shared16.json("vipu", "list", "waiters") == []


class _Theirs(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server's `virmgrpc` alone: what a Graphcore controller would answer."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._paths = {method.path for method in virm.VIRM_METHODS.values()}

    def service(self, details: Any) -> Any:
        if details.method not in self._paths:
            return None
        ask = self._channel.unary_unary(details.method)

        def answer(data: bytes, context: Any) -> Any:
            try:
                return ask(data)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def virmgrpc(shared16: Pod) -> Iterator[Pod]:
    """A pod16 of which only the vendor's protocol is to be had."""
    pod = shared16
    with Client(UnixTransport(str(pod.socket))) as client:
        port = client.get_server_info().port
    server = grpc.server(ThreadPoolExecutor(4), handlers=[_Theirs(port)])
    alone = server.add_insecure_port("127.0.0.1:0")
    server.start()
    del pod.environ["PODWRIGHT_SOCKET"]
    pod.environ |= {"IPUOF_VIPU_API_HOST": "127.0.0.1", "IPUOF_VIPU_API_PORT": str(alone)}
    pod.environ |= {"VIPU_CLI_API_HOST": "127.0.0.1", "VIPU_CLI_API_PORT": str(alone)}
    yield pod
    server.stop(None).wait()


def test_poprun_runs_with_a_controller_that_has_no_leases(virmgrpc: Pod) -> None:
    line = (*RUN, "--num-replicas=4", "--num-instances=2")
    show = ("sh", "-c", "echo $IPUOF_VIPU_API_PARTITION_ID; vipu list partitions")
    ran = virmgrpc.run(*line, *show)
    assert ran.code == 0, ran
    assert ran.out.count("| ACTIVE") == 2
    assert virmgrpc.partitions() == {}, "made for the launch, gone with it"

    ran = virmgrpc.run(*line, "--vipu-partition=mine", "--remove-partition=no", *show)
    assert "<stdout>: mine\n" in ran.out
    assert list(virmgrpc.partitions()) == ["mine"]
    # The only one there is; reset, and left there.
    assert "<stdout>: mine\n" in virmgrpc.run(*line, *show).out
    ran = virmgrpc.run(*RUN, "--num-replicas=8", "true")
    assert ran.code == 1, ran
    assert "partition mine does not fit: 4 devices instead of 8" in ran.err
    ran = virmgrpc.run(*RUN, "--num-replicas=8", "--update-partition=yes", *show)
    assert ran.code == 0, ran
    assert virmgrpc.partitions() == {}, "replaced by one of the launch's own"


def test_a_dry_run_says_what_a_vendors_controller_does_not_tell(virmgrpc: Pod) -> None:
    ran = virmgrpc.run(*DRY, "--num-replicas=4", "t")
    assert ran.code == 0, ran
    assert "whether devices are free, this controller does not tell" in ran.out
    ran = virmgrpc.run(*RUN, "--num-replicas=32", "true")
    assert ran.code != 0
    assert "POPRUN ERROR" in ran.err
    ran = virmgrpc.run(*RUN, "--num-replicas=4", "true", environ={"PODWRIGHT_LEASE": "l1"})
    assert ran.code == 2
    assert "this controller has none" in ran.err
    assert virmgrpc.partitions() == {}
