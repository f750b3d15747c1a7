"""Collectives without MPI: the meeting, the links, and the same bits as over MPI."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popdist import BackendError
from popdist._tcp_collectives import World, join
from tests.popdist.mpi import environment, launch
from tests.ports import free_port

SECRET = b"nobody knows it"


def together(size: int, work: Callable[[World], Any], **more: Any) -> list[Any]:
    """The results of `work` in as many members as there are, each in a thread."""
    at = free_port()
    found: list[Any] = [None] * size

    def member(rank: int) -> None:
        world = join(rank, size, "127.0.0.1", at, SECRET, **more)
        try:
            found[rank] = work(world)
            world.close()
        except BackendError as error:
            found[rank] = error
        finally:
            world._net.close()

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(size)]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    return found


@pytest.mark.parametrize("size", [2, 3, 8])
def test_every_collective(size: int) -> None:
    def work(world: World) -> list[Any]:
        mine = bytes([world.rank]) * 5
        gathered, swapped = bytearray(5 * size), bytearray(3 * size)
        world.Allgather(mine, gathered)
        world.Alltoall(bytes([world.rank] * 3 * size), swapped)
        sent = bytearray(mine if world.rank == size - 1 else b"....!")
        world.Bcast(sent, size - 1)
        world.Barrier()
        said = world.allgather({"rank": world.rank, "text": "x" * world.rank})
        return [bytes(gathered), bytes(swapped), bytes(sent), said]

    wanted_gather = b"".join(bytes([rank]) * 5 for rank in range(size))
    wanted_swap = b"".join(bytes([rank]) * 3 for rank in range(size))
    said = [{"rank": rank, "text": "x" * rank} for rank in range(size)]
    for found in together(size, work):
        assert found == [wanted_gather, wanted_swap, bytes([size - 1]) * 5, said]


def test_much_data_at_once_in_both_directions() -> None:
    """More than all buffers of the kernel hold: nobody may wait for the other to read first."""
    count = 1 << 23

    def work(world: World) -> bool:
        rng = np.random.default_rng(world.rank)
        mine = rng.integers(0, 255, count, np.uint8)
        got = np.empty(count * world.size, np.uint8)
        world.Allgather(mine, got)
        return all(
            (got[i * count : (i + 1) * count]
             == np.random.default_rng(i).integers(0, 255, count, np.uint8)).all()
            for i in range(world.size)
        )  # fmt: skip

    assert together(3, work) == [True] * 3


def test_some_among_themselves_while_others_do_something_else() -> None:
    def work(world: World) -> list[int]:
        group = (0, 3) if world.rank in (0, 3) else (1, 2)
        some = world.subset(group)
        got = bytearray(2)
        for _ in range(5):
            some.Allgather(bytes([world.rank]), got)
        world.Barrier()
        return list(got)

    assert together(4, work) == [[0, 3], [1, 2], [1, 2], [0, 3]]


def test_different_collectives_are_an_error_and_no_crash() -> None:
    def work(world: World) -> None:
        world.Allgather(b"x" * (world.rank + 1), bytearray((world.rank + 1) * 2))

    for found in together(2, work):
        assert isinstance(found, BackendError)
    assert any("different collectives" in str(found) for found in together(2, work))


def test_one_that_goes_is_named() -> None:
    def work(world: World) -> None:
        world.Barrier()
        if world.rank == 1:
            world._net.close()
            raise BackendError("left")
        world.Barrier()

    found = together(3, work)
    assert "left" in str(found[1])
    assert "has gone" in str(found[0])
    assert "has gone" in str(found[2])


def test_strangers_are_sent_away_and_change_nothing() -> None:
    at = free_port()
    found: list[Any] = []

    def first() -> None:
        world = join(0, 2, "127.0.0.1", at, SECRET, 120)
        strangers(world._net._places[0][1])
        found.append(world.allgather("hello"))
        world.close()

    def strangers(where: int) -> None:
        for greeting in (b"", b"\0" * 100, b"\0\0\0\1" + b"x" * 32):
            with socket.create_connection(("127.0.0.1", where)) as stranger:
                stranger.sendall(greeting)

    thread = threading.Thread(target=first)
    thread.start()
    for rank, secret in ((1, b"guessed"), (0, b"guessed"), (7, b"guessed")):
        with pytest.raises(BackendError):
            join(rank or 2, 2, "127.0.0.1", at, secret, 20)
    world = join(1, 2, "127.0.0.1", at, SECRET, 120)
    assert world.allgather("there") == ["hello", "there"]
    world.close()
    thread.join(300)
    assert found == [["hello", "there"]]


def test_what_only_claims_to_be_instance_0_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def impostor() -> None:
            guest, _ = server.accept()
            guest.sendall(b"n" * 16)
            guest.recv(1000)
            guest.sendall(b"m" * 32 + (2).to_bytes(8, "big") + b"[]")
            guest.close()

        thread = threading.Thread(target=impostor)
        thread.start()
        with pytest.raises(BackendError, match="is not instance 0 of this run"):
            join(1, 2, "127.0.0.1", server.getsockname()[1], SECRET, 120)
        thread.join(300)


def test_those_that_never_come_are_named() -> None:
    with pytest.raises(BackendError, match=r"never came: \[1, 2\]"):
        join(0, 3, "127.0.0.1", free_port(), SECRET, 0.2)
    with pytest.raises(BackendError, match="cannot meet the others"):
        join(1, 3, "127.0.0.1", free_port(), SECRET, 0.2)


PROGRAM = """
import hashlib, numpy as np, popdist
popdist.init()
me = popdist.getInstanceIndex()
random = np.random.default_rng(me)
digest = hashlib.sha256()
for dtype in ("float16", "float32", "float64", "complex64", "int32"):
    for shape in ((), (7,), (33, 5), (0,)):
        values = (random.normal(0, 1e3, shape) * 1.1).astype(dtype)
        digest.update(popdist.allReduceSum(values).tobytes())
        digest.update(popdist.allGather(values).tobytes())
        digest.update(popdist.broadcast(values, root=2).tobytes())
some = popdist.execute_on_instances({0, 2}, popdist.allReduceSum, np.full(3, me + 0.1))
if some is not None:
    digest.update(some.tobytes())
every = popdist.allGather(np.frombuffer(digest.digest(), np.uint8))
popdist.execute_on_instances({0}, print, hashlib.sha256(every.tobytes()).hexdigest())
"""


def over_tcp(folder: Path, program: str, count: int, **more: str) -> list[tuple[int, str, str]]:
    """A program in plain processes, as poprun's local launcher starts them."""
    secret = folder / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    at = str(free_port())
    running = []
    for rank in range(count):
        own = {
            **os.environ, **environment(rank, 1, count), "RANK": str(rank),
            "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": at,
            "POPDIST_SECRET_FILE": str(secret), **more,
        }  # fmt: skip
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", program], env=own, cwd=folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
    return [
        (process.wait(), out, err)
        for process in running
        for out, err in (process.communicate(timeout=300),)
    ]


def test_the_same_bits_as_over_mpi(tmp_path: Path) -> None:
    tcp = over_tcp(tmp_path, PROGRAM, 3)
    assert [code for code, _, _ in tcp] == [0, 0, 0], tcp
    mpi = launch(tmp_path, ["-c", PROGRAM], [environment(i, 1, 3) for i in range(3)])
    assert mpi.code == 0, mpi
    assert len(mpi.out.strip()) == len(hashlib.sha256().hexdigest())
    assert tcp[0][1] == mpi.out


def test_one_that_fails_lets_nobody_wait(tmp_path: Path) -> None:
    program = (
        "import popdist; popdist.init()\n"
        "if popdist.getInstanceIndex() == 1: import sys; sys.exit(1)\n"
        "popdist.barrier()\n"
    )
    ended = over_tcp(tmp_path, program, 3)
    assert all(code == 1 for code, _, _ in ended)
    assert "instance 1 has gone" in ended[0][2] + ended[2][2]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"POPDIST_SECRET_FILE": "/no/such"}, "POPDIST_SECRET_FILE: /no/such"),
        ({"POPDIST_SECRET_FILE": ""}, "mpi4py|MPI joined 1 process"),
        ({"POPDIST_SECRET_FILE": "", "POPDIST_BACKEND": "tcp"}, "who belongs to this run"),
        ({"POPDIST_BACKEND": "udp"}, "POPDIST_BACKEND='udp': expected mpi or tcp"),
        ({"RANK": "9"}, "RANK='9': expected a whole number from 0 to 1"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, more: dict[str, str], why: str) -> None:
    import re

    program = "import popdist; popdist.init()"
    for code, _, err in over_tcp(tmp_path, program, 2, **more):
        assert code != 0
        assert re.search(why, err), err


def test_in_the_environment_the_secret_works_too(tmp_path: Path) -> None:
    program = "import popdist; popdist.init(); popdist.barrier()"
    more = {"POPDIST_SECRET_FILE": "", "POPDIST_SECRET": "s"}
    assert [code for code, _, _ in over_tcp(tmp_path, program, 2, **more)] == [0, 0]
