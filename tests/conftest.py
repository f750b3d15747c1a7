"""What all rings share: hypothesis profiles with fixed seeds, and a home that is nobody's."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.rooms import (  # noqa: F401  hooks of pytest, for all rings
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_terminal_summary,
)

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

#: The folder that stands for / where podwright looks for the system's files
#: (podwright.ground.endpoints).
#: It is set before any module is imported, since modules compute their paths once. Every account
#: may enter it, because some tests start commands as other users.
SYSTEM_ROOT = Path(tempfile.mkdtemp(prefix="podwright-test-root-"))
SYSTEM_ROOT.chmod(0o755)
os.environ["PODWRIGHT_ROOT"] = str(SYSTEM_ROOT)
# Some tests fork in a process in which others have used gRPC. gRPC's own handlers for that end one
# of some hundreds of such children by SIGSEGV. None of these children uses gRPC.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
#: Folders of tests that wait for many processes, the longest first.
_LONG_ROOMS = tuple(Path(__file__).parent / name for name in ("whole", "launcher"))
#: What stays of the environment that begins with one of `_OURS`.
_KEPT = ("PODWRIGHT_SOAK", "PODWRIGHT_ROOT")

_OURS = (
    "VIPU_",
    "IPUOF_",
    "PODWRIGHT_",
    "POPDIST_",
    "POPLAR_",
    "OMPI_",
    "PMIX_",
    "SLURM_",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's garbage collector away from the tests that are collected.

    Thousands of tests and their modules stay to the end of the run. A full garbage collection with
    them takes a third of a second of processor time, in each worker, and finds nothing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)  # after the deselection by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin each worker's part with its share of the tests that take longest.

    With `--dist worksteal` each worker begins with a part of the tests in their order. A test
    of many seconds that begins last would run alone while the other workers idle. Every
    worker computes the same order.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    rooms: dict[Path | None, list[pytest.Item]] = {folder: [] for folder in (*_LONG_ROOMS, None)}
    for item in items:
        rooms[next(filter(item.path.is_relative_to, _LONG_ROOMS), None)].append(item)
    items[:] = [
        item
        for worker in range(workers)
        for tests in rooms.values()
        for item in tests[len(tests) * worker // workers : len(tests) * (worker + 1) // workers]
    ]


def pytest_unconfigure() -> None:
    """Remove the folder that stood for /."""
    shutil.rmtree(SYSTEM_ROOT, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def quick_key_hashes() -> Iterator[None]:
    """Hash access keys in this process with the lowest cost of scrypt.

    A hash takes 50 ms of processor time otherwise, which was a tenth of all that the inner ring
    took. Servers that are processes of their own have the real cost.
    """
    from podwright.controller.administration import _users

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_users, "_SCRYPT_COST", {**_users._SCRYPT_COST, "n": 2})
        yield


@pytest.fixture(autouse=True)
def nobody_at_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Hide the developer's own servers, settings and home from every test."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(_OURS) and name not in _KEPT:
            monkeypatch.delenv(name)
    for name, value in home_variables(home).items():
        monkeypatch.setenv(name, value)
    return home


def home_variables(home: Path) -> dict[str, str]:
    """Return variables that make a folder the home of a process, with runtime and settings below
    it.
    """
    run = home / "run"
    run.mkdir(mode=0o700)
    return {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(run),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PODWRIGHT_AGENT_KEY": str(home / "agent.key"),
    }
