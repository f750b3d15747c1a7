"""Real clients by the hundred at one server, over TCP: each is served, none meets a closed door.

`tests/gate/test_busy.py` has the same with small limits, and what those are told whose turn does
not come.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from podwright.client import Client, UnixTransport

PROCESSES = 4
#: Descriptors and bytes that the gate may use, whoever comes.
MOST_DESCRIPTORS, MOST_MEMORY = 6144, 640 << 20


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """A server's port, and its process."""
    place = folder / "s"
    command = [sys.executable, "-m", "podwright.cli.vipu_server", "--preset", "pod16"]
    command += ["--storage", str(folder / "db"), "--socket", str(place), "--api-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "127.0.0.1:" in process.stderr.readline()
            with Client(UnixTransport(str(place))) as client:
                port = client.get_server_info().port
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_thousand_clients_at_once_are_all_served(tmp_path: Path) -> None:
    """Four times as many as one account has places for; each makes four calls."""
    per_process = 500
    with served(tmp_path) as (port, server):
        command = [sys.executable, "-m", "tests.whole.crowd", str(port), str(per_process), "3"]
        crowds = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
        ]
        most_descriptors = most_memory = 0
        while any(crowd.poll() is None for crowd in crowds):
            for gate in server.children():
                most_descriptors = max(most_descriptors, gate.num_fds())
                most_memory = max(most_memory, gate.memory_info().rss)
            time.sleep(0.2)
        outcomes: Counter[str] = Counter()
        for crowd in crowds:
            assert crowd.stdout is not None
            outcomes.update(json.loads(crowd.stdout.read()))
            crowd.stdout.close()
        with Client(UnixTransport(str(tmp_path / "s"))) as client:
            assert client.list_partitions() == []
    assert outcomes == {"served": PROCESSES * per_process}
    assert most_descriptors < MOST_DESCRIPTORS
    assert most_memory < MOST_MEMORY
