"""A disk that is full: the server reads on, says why it changes nothing, and recovers by itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

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


def until(holds: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_postgresqls_disk_too(postgres: Postgres, tmp_path: Path) -> None:
    """The database's own file system; what PostgreSQL logs ahead is on another."""
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
        _reads_on(postgres.place(name), place, tmp_path / "s")
        postgres.admin(f"DROP DATABASE {name} WITH (FORCE)")
        postgres.admin(f"DROP TABLESPACE {name}")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


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
