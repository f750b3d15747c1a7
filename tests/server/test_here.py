"""The server's view of launches on its own host whose leases are over."""

from __future__ import annotations

import os
import signal
import subprocess
from uuid import uuid4

import pytest

from podwright.launcher.instances._run_folder import RUN_VARIABLE as LAUNCHED
from podwright.server._local_launches import ThisHost
from podwright.wire import RUN_VARIABLE


def test_launches_mark_what_the_server_looks_for() -> None:
    assert LAUNCHED == RUN_VARIABLE


def test_what_runs_here_is_found_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped processes are found too, and what cannot be seen is not taken for gone."""
    here, mine = ThisHost(["n1"]), os.geteuid()
    run, other_run = f"run-{uuid4()}", f"run-{uuid4()}"  # others may run this test beside us
    assert here.is_here("localhost")
    assert not here.is_here("203.0.113.7")
    assert (here.has("n1"), here.has("n2")) == (True, False)
    assert here.is_gone(run, mine)
    with subprocess.Popen(["sleep", "600"], env={**os.environ, RUN_VARIABLE: run}) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            while here.is_gone(run, mine):  # until it has become `sleep`
                assert process.poll() is None
            assert here.is_gone(other_run, mine)
        finally:
            process.kill()
    assert here.is_gone(run, mine)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert here.is_gone(run, 4711)
    for other in (0, 4712, -1):
        assert not here.is_gone(run, other)
