"""The run's folders: private, locked, removed after they were abandoned and never before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.launcher.instances import _run_folder
from podwright.launcher.instances._run_folder import RUN_VARIABLE, RunFolder, make_folder, sweep


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Folders of this test alone, since launches of other tests remove abandoned ones in
    /dev/shm.
    """
    with tempfile.TemporaryDirectory(prefix="podwright-test-", dir="/dev/shm") as memory:
        monkeypatch.setattr(_run_folder, "SHARED_MEMORY", memory)
        yield {"TMPDIR": str(tmp_path)}


def abandon(folder: RunFolder) -> None:
    for lock in folder.locks:
        os.close(lock)


def age(folder: RunFolder) -> None:
    """Make a folder too old to be one that is just being made."""
    for path in (folder.path, folder.shared_memory):
        os.utime(path, (0, 0))


def test_both_folders_are_private_and_are_removed(environ: dict[str, str], tmp_path: Path) -> None:
    folder = make_folder(environ)
    try:
        assert Path(folder.path).parent == tmp_path
        assert os.stat(folder.path).st_mode & 0o777 == 0o700
        assert os.stat(folder.shared_memory).st_mode & 0o777 == 0o700
        (Path(folder.path) / "deep" / "er").mkdir(parents=True)
        (Path(folder.path) / "deep" / "link").symlink_to(tmp_path)
        Path(folder.shared_memory, "sm_segment").write_text("x")
    finally:
        folder.remove()
        folder.remove()
    abandon(folder)
    assert tmp_path.exists()
    assert not list(tmp_path.iterdir())
    assert not os.path.exists(folder.shared_memory)


def test_a_run_that_lives_is_not_swept_and_one_that_is_dead_is(environ: dict[str, str]) -> None:
    folder = make_folder(environ)
    age(folder)
    assert folder.name not in sweep(environ)
    abandon(folder)
    for path in (folder.path, folder.shared_memory):
        os.utime(path, (time.time() + 60,) * 2)
    assert folder.name not in sweep(environ), "it might just be in the making"
    age(folder)
    assert folder.name in sweep(environ)
    assert not os.path.exists(folder.path)
    assert not os.path.exists(folder.shared_memory)


def test_processes_of_an_abandoned_run_are_ended(environ: dict[str, str]) -> None:
    folder = make_folder(environ)
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
        env={**os.environ, RUN_VARIABLE: folder.name},
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.readline()
    abandon(folder)
    age(folder)
    sweep(environ)
    assert process.wait(300) == -9
    process.stdout.close()


def test_others_folders_are_left_alone(environ: dict[str, str], tmp_path: Path) -> None:
    alien = tmp_path / f"podwright-run-{os.getuid() + 1}-abc"
    alien.mkdir()
    (tmp_path / f"podwright-run-{os.getuid()}-file").write_text("not a folder")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    sweep(environ)
    assert alien.exists()
