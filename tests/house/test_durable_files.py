"""Files are written as a whole or not at all, and the account's folders are XDG's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podwright.ground.durable_files import user_folder, write_whole


def test_a_file_has_its_text_and_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        write_whole(tmp_path / "public", "für alle\n", 0o644)
        write_whole(tmp_path / "private", b"\xff")
    finally:
        os.umask(umask)
    assert (tmp_path / "public").read_text(encoding="utf-8") == "für alle\n"
    assert (tmp_path / "private").read_bytes() == b"\xff"
    assert (tmp_path / "public").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "private").stat().st_mode & 0o7777 == 0o600


def test_a_file_may_keep_its_mode_and_its_attributes(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text("old")
    path.chmod(0o751)
    os.utime(path, (1.0, 1.0))
    write_whole(path, "new", None)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o7777 == 0o751
    assert path.stat().st_mtime > 1.0


def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("target")
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", "own")
    assert (tmp_path / "target").read_text() == "target"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("failing", ["fsync", "replace", "fchmod"])
def test_a_failure_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "state"
    write_whole(path, "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["state"]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        steps.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file")
        sync(descriptor)

    def note_rename(old: str, new: str) -> None:
        steps.append("name")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    write_whole(tmp_path / "state", "text")
    assert steps == ["file", "name", "folder"]


def test_a_folder_is_xdgs_or_the_default_below_home() -> None:
    assert user_folder("state", {"XDG_STATE_HOME": "/state", "HOME": "/home/a"}) == "/state"
    assert user_folder("state", {"XDG_STATE_HOME": "state", "HOME": "/h"}) == "/h/.local/state"
    assert user_folder("config", {"HOME": "/h"}) == "/h/.config"
    assert user_folder("cache", {"HOME": "/h"}) == "/h/.cache"
    assert user_folder("data", {"HOME": "/h"}) == "/h/.local/share"
