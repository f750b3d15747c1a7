"""What all rings share: hypothesis profiles with fixed seeds, and a home that is nobody's."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))

settings.register_profile(
    "default",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), max_examples=100)
settings.register_profile("soak", settings.get_profile("default"), max_examples=5000)
settings.load_profile("soak" if SOAK else os.environ.get("HYPOTHESIS_PROFILE", "default"))

#: A shell's background job ignores Ctrl-C, and so would every command that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    #: That of nohup is for the tests, and not for the commands that they start.
    signal.signal(signal.SIGHUP, lambda *_: None)

_OURS = ("VIPU_", "IPUOF_", "PODWRIGHT_", "POPDIST_", "POPLAR_", "OMPI_", "PMIX_", "SLURM_")


@pytest.fixture(autouse=True)
def nobody_at_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """No test sees the developer's own servers, settings or home."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(_OURS) and name != "PODWRIGHT_SOAK":
            monkeypatch.delenv(name)
    run = home / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("PODWRIGHT_AGENT_KEY", str(home / "agent.key"))
    return home
