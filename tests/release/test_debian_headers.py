"""For which Debian `make debian` compiles podwright-slurm: headers of another Slurm are refused."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from tools.debian import MACHINES, SUITES, NoHeaders, headers_of, slurm_headers

OWN = {machine: name for name, machine in MACHINES.items()}.get(platform.machine(), "")


def _headers(folder: Path, number: str) -> Path:
    (folder / "slurm").mkdir()
    (folder / "slurm" / "slurm_version.h").write_text(f"#define SLURM_VERSION_NUMBER {number}\n")
    return folder


def test_the_release_of_headers_is_read(tmp_path: Path) -> None:
    assert headers_of(tmp_path) == ""
    assert headers_of(_headers(tmp_path, "0x180b05")) == "24.11"


@pytest.mark.skipif(not OWN, reason="no package is for this machine")
def test_headers_are_taken_for_their_own_debian_alone(tmp_path: Path) -> None:
    include = _headers(tmp_path, "0x160508")
    assert slurm_headers("bookworm", OWN, include) == include
    with pytest.raises(NoHeaders, match=r"Slurm 24\.11, and .* has those of Slurm 22\.05"):
        slurm_headers("trixie", OWN, include)
    for suite in SUITES:
        with pytest.raises(NoHeaders, match="has none"):
            slurm_headers(suite, OWN, tmp_path / "nothing")


@pytest.mark.skipif(not OWN, reason="no package is for this machine")
def test_nothing_is_compiled_for_another_machine(tmp_path: Path) -> None:
    other = next(name for name in MACHINES if name != OWN)
    with pytest.raises(NoHeaders, match=f"on {other} itself"):
        slurm_headers("bookworm", other, _headers(tmp_path, "0x160508"))
