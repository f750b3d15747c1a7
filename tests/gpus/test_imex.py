"""IMEX channels: one for each partition, the same on each machine, and none left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podwright.agents.gpu import Imex
from podwright.errors import Internal, WrongState
from podwright.hosts.gpus import Gpu, Library


@pytest.fixture
def gpus(nvml: Library) -> tuple[Gpu, ...]:
    """Those of a machine."""
    return nvml.gpus()


def imex(folder: Path, *, channels: int = 2048) -> Imex:
    """The guard of one machine; its device files are plain ones."""
    (folder / "proc").mkdir(parents=True, exist_ok=True)
    (folder / "proc/devices").write_text("Character devices:\n235 nvidia-caps-imex-channels\n")

    def make(path: str, major: int, minor: int) -> None:
        assert major == 235
        Path(path).write_text(str(minor))

    return Imex(folder / "state", f"{folder}/", make=make, channels=channels)


def made(folder: Path) -> list[str]:
    """The device files that there are."""
    there = folder / "dev/nvidia-caps-imex-channels"
    return sorted(os.listdir(there)) if there.exists() else []


def test_one_number_on_all_machines(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    one, other = imex(tmp_path / "n1"), imex(tmp_path / "n2")
    for machine in (one, other):
        machine.check(gpus)
        machine.join("p1", "", gpus[:4])
        machine.join("p1", "", gpus[:4])
    assert made(tmp_path / "n1") == made(tmp_path / "n2") == [f"channel{one.number('p1')}"]
    path = Path(one.path(one.number("p1")))
    assert path.stat().st_mode & 0o777 == 0o600
    one.join("p2", "", gpus[4:])
    assert len(made(tmp_path / "n1")) == 2
    one.leave(gpus[:4])
    one.leave(gpus[:4])
    assert made(tmp_path / "n1") == [f"channel{one.number('p2')}"]
    one.leave(gpus)
    assert (made(tmp_path / "n1"), one.channels()) == ([], [])


def test_a_channel_goes_with_the_last_gpu(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = imex(tmp_path)
    guard.join("p1", "", gpus[:2])
    guard.leave(gpus[:1])
    assert len(made(tmp_path)) == 1
    guard.leave(gpus[1:2])
    assert made(tmp_path) == []


def test_no_two_partitions_share_one(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = imex(tmp_path, channels=2)
    guard.join("p1", "", gpus[:4])
    with pytest.raises(WrongState, match="IMEX channel 1 is partition p1's"):
        guard.join("p2", "", gpus[4:])
    guard.leave(gpus[4:])
    assert made(tmp_path) == ["channel1"]


def test_killed_between_the_note_and_the_file(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = imex(tmp_path)
    guard.join("p1", "", gpus)
    Path(guard.path(guard.number("p1"))).unlink()
    again = imex(tmp_path)
    again.leave(gpus)
    assert again.channels() == []
    again.join("p1", "", gpus)
    assert len(made(tmp_path)) == 1
    again.leave(gpus)
    assert made(tmp_path) == []


def test_a_machine_without_channels_is_told_so(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = imex(tmp_path)
    (tmp_path / "proc/devices").write_text("Character devices:\n  1 mem\n")
    with pytest.raises(Internal, match="has no IMEX channels"):
        guard.check(gpus)
