"""A disk that is full: the server reads on, says why it changes nothing, and recovers by itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from podwright.client import Client, UnixTransport
from podwright.errors import Unavailable
from podwright.wire import AcquireRequest, PartitionSpec
from tests.outer.postgres import USER, Postgres

pytestmark = pytest.mark.outer


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for a store and little more."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def test_it_reads_on_and_recovers(small: Path, tmp_path: Path) -> None:
    where = tmp_path / "s"
    words = ["-m", "podwright.cli.vipu_server", "--preset", "pod16", "--api-port", "0"]
    words += ["--storage", str(small / "db"), "--socket", str(where)]
    with (
        subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as process,
        Client(UnixTransport(str(where))) as client,
    ):
        assert process.stderr is not None
        assert "pod16" in process.stderr.readline()
        client.create_partition(PartitionSpec(name="p0", size=4))
        held = client.acquire(AcquireRequest(spec=PartitionSpec(name="p0"), ttl=600))
        for turn in (1, 2):  # as often as the disk is full
            fill(small)
            said = ""
            for _ in range(1000):  # what the log still has room for
                try:
                    client.create_partition(PartitionSpec(name=f"x{turn}", size=1))
                    client.remove_partition(f"x{turn}")
                except Unavailable as error:
                    said = error.message
                    break
            assert said
            before = [p.name for p in client.list_partitions()]
            assert "p0" in before
            with pytest.raises(Unavailable, match="read only for now, since the disk of the store"):
                client.remove_partition("p0", force=True)
            client.renew(held.lease.id, held.lease.epoch)
            assert client.explain("p0").lines
            assert process.poll() is None
            (small / "filler").unlink()
            until(partial(creates, client, f"after{turn}"))
            assert "p0" in [p.name for p in client.list_partitions()]
            client.renew(held.lease.id, held.lease.epoch)
        client.release(held.lease.id, held.lease.epoch)
        process.terminate()
        assert process.wait(300) == 0
        log = process.stderr.read()
        assert "read only: " in log
        assert "serving as before" in log


def creates(client: Client, name: str) -> bool:
    try:
        client.create_partition(PartitionSpec(name=name, size=1))
    except Unavailable:
        return False
    return True


def until(holds: Callable[[], bool], seconds: float = 300, pause: float = 0.05) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(pause)


@pytest.fixture
def small_database(postgres: Postgres) -> Iterator[tuple[str, Path]]:
    """A database on a small file system of its own, and that: PostgreSQL logs ahead elsewhere."""
    place = Path(tempfile.mkdtemp(prefix="podwright-full-", dir="/tmp"))
    place.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(place)], check=True)
    try:
        space = place / "space"
        space.mkdir()
        shutil.chown(space, USER, USER)
        name = place.name.replace("-", "_")
        postgres.admin(f"CREATE TABLESPACE {name} LOCATION '{space}'")
        postgres.admin(f"CREATE DATABASE {name} TABLESPACE {name}")
        yield name, place
        postgres.admin(f"DROP DATABASE {name} WITH (FORCE)")
        postgres.admin(f"DROP TABLESPACE {name}")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


def test_postgresqls_disk_too(
    postgres: Postgres, small_database: tuple[str, Path], tmp_path: Path
) -> None:
    name, place = small_database
    _reads_on(postgres.place(name), place, tmp_path / "s")


def test_it_starts_on_postgresqls_full_disk(
    postgres: Postgres, small_database: tuple[str, Path], tmp_path: Path
) -> None:
    """Not even the store can be claimed: it reads, says why it changes nothing, recovers."""
    name, place = small_database
    where = tmp_path / "s"
    words = [sys.executable, "-m", "podwright.cli.vipu_server", "--preset", "pod16"]
    words += ["--api-port", "0", "--storage", postgres.place(name), "--socket", str(where)]
    words += ["--http-port", "0"]
    with (
        subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process,
        Client(UnixTransport(str(where))) as client,
    ):
        until(partial(creates, client, "p0"))
        process.terminate()
        process.wait(300)
    # A server updates its own row in place, for which a full disk has room. Somebody who reads an
    # old state, a backup, say, keeps the former rows from being overwritten.
    with (
        psycopg.connect(postgres.place(name), autocommit=True) as writer,
        psycopg.connect(postgres.place(name)) as reader,
    ):
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM podwright.server")
        fill(place)
        until(lambda: not _has_room(writer), pause=0)
        with (
            subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process,
            Client(UnixTransport(str(where))) as client,
        ):
            try:
                until(lambda: _names(client) == ["p0"], 60)
                page = client.get_server_info().page
                with pytest.raises(Unavailable, match="the disk of the store"):
                    client.create_partition(PartitionSpec(name="x", size=1))
                until(lambda: _value(page, "podwright_read_only") == 1, 60)
                (place / "filler").unlink()
                until(partial(creates, client, "after"), 60)
                until(lambda: _value(page, "podwright_read_only") == 0, 60)
                process.terminate()
                assert process.wait(300) == 0
            finally:
                process.kill()


def _has_room(writer: psycopg.Connection[Any]) -> bool:
    try:
        writer.execute("UPDATE podwright.server SET time = time")
    except psycopg.errors.DiskFull:
        return False
    return True


def _reads_on(storage: str, place: Path, where: Path) -> None:
    words = ["-m", "podwright.cli.vipu_server", "--preset", "pod64", "--api-port", "0"]
    words += ["--storage", storage, "--socket", str(where)]
    with (
        subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as process,
        Client(UnixTransport(str(where))) as client,
    ):
        assert process.stderr is not None
        until(partial(creates, client, "p0"))
        fill(place)
        made = 0
        for made in range(64):  # what the pages have room for
            if not creates(client, f"x{made}"):
                break
        else:
            raise AssertionError("it was never full")
        names = {p.name for p in client.list_partitions()}
        assert {"p0", *(f"x{n}" for n in range(made))} <= names
        with pytest.raises(Unavailable, match=r"disk of the store .* full"):
            client.remove_partition("p0")
        (place / "filler").unlink()
        until(partial(creates, client, "after"))
        assert names <= {p.name for p in client.list_partitions()}
        process.terminate()
        assert process.wait(300) == 0
        log = process.stderr.read()
        assert "read only: " in log
        assert "serving as before" in log


@pytest.mark.parametrize("killed", [False, True])
def test_it_starts_on_a_full_disk(small: Path, tmp_path: Path, killed: bool) -> None:
    """After an orderly end and after kill -9: it reads, says why it changes nothing, recovers."""
    where = tmp_path / "s"
    words = [sys.executable, "-m", "podwright.cli.vipu_server", "--preset", "pod16"]
    words += ["--api-port", "0", "--storage", str(small / "db"), "--socket", str(where)]
    words += ["--http-port", "0"]
    with (
        subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process,
        Client(UnixTransport(str(where))) as client,
    ):
        assert process.stderr is not None
        until(partial(creates, client, "p0"))
        held = client.acquire(AcquireRequest(spec=PartitionSpec(name="p0"), ttl=600))
        (process.kill if killed else process.terminate)()
        process.wait(300)
    fill(small)
    with (
        subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process,
        Client(UnixTransport(str(where))) as client,
    ):
        assert process.stderr is not None
        page = process.stderr.readline().split()[-1]
        assert "pod16" in process.stderr.readline()
        assert "read only: the disk of the store" in process.stderr.readline()
        until(lambda: _names(client) == ["p0"])
        with pytest.raises(Unavailable, match="read only for now, since the disk of the store"):
            client.create_partition(PartitionSpec(name="x", size=1))
        until(lambda: _value(page, "podwright_read_only") == 1)
        (small / "filler").unlink()
        until(partial(creates, client, "after"))
        client.renew(held.lease.id, held.lease.epoch)
        until(lambda: _value(page, "podwright_read_only") == 0)
        process.terminate()
        assert process.wait(300) == 0


def _names(client: Client) -> list[str]:
    try:
        return [partition.name for partition in client.list_partitions()]
    except Unavailable:
        return []


def _value(page: str, metric: str) -> float | None:
    """The value of a metric of one series; None where it is not there."""
    with urllib.request.urlopen(f"{page}metrics") as answer:
        text = answer.read().decode()
    found = re.search(rf"^{metric}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None
