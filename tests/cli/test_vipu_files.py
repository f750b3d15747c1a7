"""The IPUoF files of a partition are written with it and removed with it; others stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.api import _ipuof_files as _vipu_files
from podwright.wire import ReadyState
from tests.cli.test_vipu import Vipu, partition, vipu  # noqa: F401


@pytest.fixture
def folder(nobody_at_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_vipu_files, "SYSTEM", nobody_at_home / "etc")
    return nobody_at_home / ".ipuof.conf.d"


def test_a_partition_of_one_gcd_gets_one_file(vipu: Vipu, folder: Path) -> None:  # noqa: F811
    assert vipu("create partition p1 --size 4", partition()) == 0
    (path,) = folder.iterdir()
    assert path.name == "p1_ipuof.conf"
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    config = json.loads(path.read_text())
    assert config["attributes"] == {"GCD Id": "0", "Partition Id": "p1"}
    assert [d["ip"] for d in config["devices"]] == ["10.0.0.1"] * 4
    assert vipu("remove partition p1") == 0
    assert list(folder.iterdir()) == []


def test_a_partition_of_several_gcds_gets_a_file_for_each(vipu: Vipu, folder: Path) -> None:  # noqa: F811
    assert vipu("create partition p1 --size 4 --num-gcds 2", partition(gcds=2)) == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["p1_gcd0_ipuof.conf", "p1_gcd1_ipuof.conf"]
    assert vipu("create partition p1 --size 4", partition()) == 0
    assert [path.name for path in folder.iterdir()] == ["p1_ipuof.conf"], "older ones are replaced"


def test_files_of_others_stay(vipu: Vipu, folder: Path) -> None:  # noqa: F811
    folder.mkdir()
    for name, body in {
        "p1_gcd0_ipuof.conf": {"attributes": {"Partition Id": "p1_gcd0"}},
        "p1_gcd1_ipuof.conf": {"attributes": {"GCD Id": "1"}},
        "p10_ipuof.conf": {"attributes": {"Partition Id": "p10"}},
    }.items():
        (folder / name).write_text(json.dumps(body))
    (folder / "p1_gcd2_ipuof.conf").write_text("not JSON")
    assert vipu("remove partition p1") == 0
    assert len(list(folder.iterdir())) == 4


def test_system_wide_files_can_be_read_by_all_accounts(vipu: Vipu, folder: Path) -> None:  # noqa: F811
    assert vipu("create partition p1 --size 4 --system-wide", partition()) == 0
    (path,) = _vipu_files.SYSTEM.iterdir()
    assert path.stat().st_mode & 0o777 == 0o644
    assert not folder.exists()
    assert vipu("reset partition p1", partition(size=2)) == 0
    assert len(json.loads(path.read_text())["devices"]) == 2, "a reset may have moved it"
    assert vipu("remove partition p1") == 0
    assert list(_vipu_files.SYSTEM.iterdir()) == []


def test_no_file_is_written_where_none_is_wanted_or_it_failed(vipu: Vipu, folder: Path) -> None:  # noqa: F811
    assert vipu("create partition p1 --size 4 --no-ipuof-files", partition()) == 0
    broken = partition(ready_state=ReadyState.ERROR, errors=["ag1 is dead"])
    assert vipu("create partition p1 --size 4", broken) == 1
    assert not folder.exists()


def test_a_home_that_cannot_be_written_is_said(vipu: Vipu, folder: Path) -> None:  # noqa: F811
    folder.write_text("a file where the folder should be")
    assert vipu("create partition p1 --size 4", partition()) == 0
    assert vipu.out == "create partition (p1): success.\n"
    assert "were not written" in vipu.err
