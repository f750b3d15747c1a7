"""A PostgreSQL cluster of the tests' own: Debian's binaries, an unprivileged user, a Unix socket.

Nothing is shared with a cluster that the machine may have: folder, socket and settings are ours,
and all of it goes when the tests end.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

USER = "postgres"  # Debian's package makes the account; the cluster's superuser is called alike


def binaries() -> Path:
    """The newest PostgreSQL of Debian's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    assert found, "no PostgreSQL: bash tests/outer/install.sh"
    return found[-1]


class Postgres:
    """A running cluster. `url(name)` makes a new, empty database. parent: where its socket is; the
    hosts of a HostsLab have a /tmp of their own."""

    def __init__(self, parent: str = "/tmp") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="podwright-pg-", dir=parent))
        account = pwd.getpwnam(USER)
        os.chown(self.folder, account.pw_uid, account.pw_gid)
        self.data = self.folder / "data"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Postgres:
        try:
            self._run(
                "initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"
            )
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def start(self, *settings: str) -> None:
        """Start it, again if it ran before; settings like `synchronous_commit=off`."""
        # Nobody pulls this machine's plug, and a slow disk would let servers' leases run out.
        options = ["fsync=off", "listen_addresses=", f"unix_socket_directories={self.folder}"]
        options += settings
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(binaries() / "postgres"),
                    *("-D", str(self.data)),
                    *(word for option in options for word in ("-c", option)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=USER,
                group=USER,
                extra_groups=[],
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + 300
        while True:
            try:
                self.admin("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, "PostgreSQL does not answer"
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """End it: SIGQUIT is a crash without its mess, SIGINT cuts connections with a word."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(300)
            self.process = None

    def url(self, name: str = "") -> str:
        """A new, empty database."""
        name = name or f"t{uuid.uuid4().hex[:12]}"
        self.admin(f'CREATE DATABASE "{name}"')
        return self.place(name)

    def place(self, name: str, user: str = USER) -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{name}?host={self.folder}"

    def admin(self, statement: str, *, database: str = "postgres") -> Sequence[tuple[Any, ...]]:
        """Run a statement as the superuser; its rows."""
        with psycopg.connect(self.place(database), autocommit=True) as db:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def cut(self, name: str) -> int:
        """End every connection to a database; how many there were."""
        ended = self.admin(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        )
        return len(ended)

    def _run(self, command: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(binaries() / command), *arguments],
            user=USER,
            group=USER,
            extra_groups=[],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)
