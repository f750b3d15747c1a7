"""The programs of a lab, if a developer names a folder of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.lab import _binaries, binaries
from tests.outer.lab import LabError


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(_binaries, "_NAMED", str(tmp_path))
    binaries.cache_clear()
    yield tmp_path
    binaries.cache_clear()


def test_the_programs_of_a_named_folder_are_used_and_nothing_is_built(
    named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.run", None)  # what would build them
    program = named / "kube-apiserver"
    program.touch()
    assert binaries()["kube-apiserver"] == str(program)
    assert binaries()["sh"] == "/usr/bin/sh"
    assert binaries().path.startswith(f"{named}:")
    with pytest.raises(LabError, match=f"no kubeless in {named}"):
        binaries()["kubeless"]
