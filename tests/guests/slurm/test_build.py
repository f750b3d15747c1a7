"""The plugin is compiled with the headers of the Slurm on PATH, wherever that Slurm is
installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import Unavailable
from podwright.guests.slurm.setup import build

#: What `make` is told, in a file beside it.
_MAKE = '#!/bin/sh\nfor word; do echo "$word"; done >"${0%/*}/told"\n'


@pytest.fixture
def opt(tmp_path: Path) -> Path:
    """A Slurm in a folder of its own, as `make install` leaves it."""
    prefix = tmp_path / "opt" / "slurm"
    for name in ("lib/slurm/x.so", "include/slurm/spank.h", "bin/scontrol"):
        (prefix / name).parent.mkdir(parents=True)
        (prefix / name).touch(mode=0o755)
    return prefix


def _told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, include: str = "") -> str:
    """Return the headers that make is given when this folder is the first on PATH."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "make").write_text(_MAKE)
    (tools / "make").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{folder}:/usr/bin:/bin")
    build(tmp_path / "made", include=include)
    told = (tools / "told").read_text().splitlines()
    return next((word for word in told if word.startswith("SLURM_INCLUDE=")), "")


def test_a_slurm_in_a_folder_of_its_own(
    opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"SLURM_INCLUDE={opt}/include"
    assert _told(tmp_path, monkeypatch, opt / "bin") == wanted
    links = tmp_path / "links"
    links.mkdir()
    (links / "scontrol").symlink_to(opt / "bin" / "scontrol")
    assert _told(tmp_path, monkeypatch, links) == wanted
    assert _told(tmp_path, monkeypatch, links, "/else") == "SLURM_INCLUDE=/else"


def test_one_without_headers_is_not_given_another_slurms(
    opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (opt / "include" / "slurm" / "spank.h").unlink()
    with pytest.raises(Unavailable, match=r"has no include/slurm/spank\.h") as raised:
        _told(tmp_path, monkeypatch, opt / "bin")
    assert "--include" in raised.value.would_work
    assert not (tmp_path / "made").exists()


def test_a_script_of_that_name_is_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that calls another host's scontrol does not tell which headers are here."""
    for name in ("lib", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    assert _told(tmp_path, monkeypatch, tmp_path / "bin") == ""
