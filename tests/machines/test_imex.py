"""IMEX channels: one for each partition, the same on each machine, and none left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podwright.agents.gpu import (
    FabricGuard,
    FileFabricJournal,
    FilePartitionNotes,
    HeldPartition,
    ImexChannels,
)
from podwright.agents.gpu._imex_channel import ChannelFiles
from podwright.errors import Fenced, Internal, WrongState
from podwright.hosts.gpus import Gpu, Library


@pytest.fixture
def gpus(nvml: Library) -> tuple[Gpu, ...]:
    """Those of a machine."""
    return nvml.gpus()


class Imex(FabricGuard):
    """The guard of one machine, whose device files are plain ones."""

    def __init__(self, folder: Path, gpus: tuple[Gpu, ...], channels: int = 2048) -> None:
        (folder / "proc").mkdir(parents=True, exist_ok=True)
        (folder / "proc/devices").write_text("Character devices:\n235 nvidia-caps-imex-channels\n")

        def make(path: str, major: int, minor: int) -> None:
            assert major == 235
            Path(path).write_text(str(minor))

        self.notes = FilePartitionNotes(folder / "state")
        files = ChannelFiles(f"{folder}/", make)
        fabric = ImexChannels(gpus, self.notes, channel_files=files, channel_count=channels)
        self.number, self.path = fabric.number, fabric.path
        super().__init__(fabric, FileFabricJournal(folder / "state/journal"))

    def channels(self) -> list[int]:
        """The channels that are written down."""
        return sorted(self.notes.entries())


def made(folder: Path) -> list[str]:
    """The device files that there are."""
    there = folder / "dev/nvidia-caps-imex-channels"
    return sorted(os.listdir(there)) if there.exists() else []


def test_one_number_on_all_machines(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    one, other = Imex(tmp_path / "n1", gpus), Imex(tmp_path / "n2", gpus)
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
    guard = Imex(tmp_path, gpus)
    guard.join("p1", "", gpus[:2])
    guard.leave(gpus[:1])
    assert len(made(tmp_path)) == 1
    guard.leave(gpus[1:2])
    assert made(tmp_path) == []


def test_no_two_partitions_share_one(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = Imex(tmp_path, gpus, channels=2)
    guard.join("p1", "", gpus[:4])
    with pytest.raises(WrongState, match="IMEX channel 1 is partition p1's"):
        guard.join("p2", "", gpus[4:])
    guard.leave(gpus[4:])
    assert made(tmp_path) == ["channel1"]


def test_killed_between_the_note_and_the_file(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = Imex(tmp_path, gpus)
    guard.join("p1", "", gpus)
    Path(guard.path(guard.number("p1"))).unlink()
    again = Imex(tmp_path, gpus)
    again.leave(gpus)
    assert again.channels() == []
    again.join("p1", "", gpus)
    assert len(made(tmp_path)) == 1
    again.leave(gpus)
    assert made(tmp_path) == []


def test_a_machine_without_channels_is_told_so(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = Imex(tmp_path, gpus)
    (tmp_path / "proc/devices").write_text("Character devices:\n  1 mem\n")
    with pytest.raises(Internal, match="has no IMEX channels"):
        guard.check(gpus)


def test_a_strangers_channel_is_left_alone(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = Imex(tmp_path, gpus)
    path = Path(guard.path(guard.number("p1")))
    path.parent.mkdir(parents=True)
    path.write_text("a stranger's")
    path.chmod(0o640)
    with pytest.raises(WrongState, match="is there already, and not Podwright's"):
        guard.join("p1", "", gpus)
    guard.leave(gpus)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a stranger's", 0o640)


def test_a_lost_channel_is_named_and_comes_back(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = Imex(tmp_path, gpus)
    guard.join("p1", "", gpus[:2])
    record = [HeldPartition("p1", "", gpus[:2])]
    assert guard.keep(record) == {}
    Path(guard.path(guard.number("p1"))).unlink()
    assert set(guard.keep(record)) == {gpu.uuid for gpu in gpus[:2]}
    guard.join(*record[0])
    assert guard.keep(record) == {}


def test_an_old_epoch_is_refused_after_a_restart(tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    guard = Imex(tmp_path, gpus)
    guard.under(7)
    guard.join("p1", "", gpus[:2])
    again = Imex(tmp_path, gpus)
    again.under(6)
    with pytest.raises(Fenced, match="have seen epoch 7"):
        again.leave(gpus[:2])
    assert len(made(tmp_path)) == 1
