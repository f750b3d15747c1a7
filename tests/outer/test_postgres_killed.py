"""The server over PostgreSQL, killed at named commits and at random, as over SQLite; and what the
command does with a database: backup, restore, and no password in its arguments."""

from __future__ import annotations

import json
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.client import Client, GrpcTransport, parse_addresses
from podwright.errors import Unauthenticated
from podwright.wire import BackupReply, BackupRequest, PartitionSpec
from tests.outer.postgres import Postgres
from tests.whole.test_killed_server import ENOUGH, SEED, Server, command, faults_of, harass

pytestmark = pytest.mark.outer

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))


@pytest.fixture
def server(tmp_path: Path, postgres: Postgres) -> Iterator[Server]:
    made = Server(tmp_path, postgres.url())
    yield made
    made.kill()


@pytest.mark.timeout(10800 if SOAK else 600)
def test_killed_at_named_steps_and_at_random(server: Server) -> None:
    chance = random.Random(SEED)
    faults = faults_of({"commit": 120, "driver": 120}, 540)
    faults = chance.sample(faults, 1000 if SOAK else 3)
    answered = harass(server, faults, chance)
    assert server.restarts >= len(faults)
    assert answered > ENOUGH
    print(f"\n{server.restarts} restarts, {answered} calls answered")


def test_backup_beside_the_active_server_and_restore(
    server: Server, postgres: Postgres, tmp_path: Path
) -> None:
    assert server.start()
    with server.client() as client:
        client.create_partition(PartitionSpec(name="kept", size=4))
        file = tmp_path / "backup"
        saved = command(server, "--backup", str(file))
        assert saved.returncode == 0, saved.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        client.create_partition(PartitionSpec(name="later", size=4))
        content = client.ask("Backup", BackupRequest(), BackupReply).content
        records = json.loads(content.splitlines()[0])["records"]
        assert records > len(file.read_text().splitlines()) - 2
        busy = command(server, "--restore", str(file), "--replace")
        assert busy.returncode != 0
        assert "is active on the store" in busy.stderr
        assert {p.name for p in client.list_partitions()} == {"kept", "later"}
    other = Server(tmp_path / "other", postgres.url())
    other.folder.mkdir()
    restored = command(other, "--restore", str(file))
    assert restored.returncode == 0, restored.stderr
    again = command(other, "--restore", str(file))
    assert again.returncode != 0
    assert "already" in again.stderr
    assert command(other, "--restore", str(file), "--replace").returncode == 0
    try:
        assert other.start()
        with other.client() as client:
            assert [p.name for p in client.list_partitions()] == ["kept"]
    finally:
        other.kill()


def test_a_password_in_the_arguments_is_refused_unread(server: Server) -> None:
    server.place = "postgresql://me:hush-hush@/nowhere"
    ended = command(server, "--backup", "/nonexistent/file")
    assert ended.returncode == 2
    assert "carries a password" in ended.stderr
    assert "hush" not in ended.stderr


def test_a_secure_store_in_a_database(server: Server) -> None:
    made = command(server, "--init", "--secure", "--default-user-id", "chief")
    assert made.returncode == 0, made.stderr
    assert "Access key is" in made.stdout
    again = command(server, "--init", "--secure")
    assert again.returncode != 0
    assert "there is a store already" in again.stderr
    assert server.start()
    with server.client() as client:  # by its socket, where the kernel says who calls
        info = client.get_server_info()
        assert client.list_partitions() == []
    address = parse_addresses(f"127.0.0.1:{info.port}")[0]
    stranger = Client(GrpcTransport(address.host, address.port))
    with stranger, pytest.raises(Unauthenticated):
        stranger.list_partitions()
