"""Files that Slurm reads, written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from podwright.slurm.site.file_changes import FileChanges, carry_out, summary


@pytest.mark.parametrize("behind", [0, 5, 100])
def test_a_script_is_of_a_later_second_than_the_one_before(tmp_path: Path, behind: int) -> None:
    """slurmctld (22.05 to 26.05, slurm_lua.c) compares whole seconds, and keeps what is not later.

    behind: seconds that this machine's clock, or a file that comes back, is behind.
    """
    script, own = tmp_path / "job_submit.lua", tmp_path / "job_submit.lua.own"
    last = int(time.time()) + behind
    for text in ("one", "two", "three"):
        script.touch()
        os.utime(script, (last, last))
        carry_out(FileChanges(texts={script: text}))
        assert script.read_text() == text
        last, before = int(script.stat().st_mtime), last
        assert last > before
    own.write_text("the site's")
    os.utime(own, (1, 1))
    carry_out(FileChanges(moves=[(own, script)]))
    assert script.read_text() == "the site's"
    assert int(script.stat().st_mtime) > last


def test_a_summary_counts_the_lines_of_each_file(tmp_path: Path) -> None:
    conf, new, old = tmp_path / "slurm.conf", tmp_path / "new.lua", tmp_path / "old"
    conf.write_text("A=1\nB=2\n")
    old.write_text("x\n")
    plan = FileChanges(texts={conf: "A=1\nB=3\nC=4\n", new: "1\n2\n", old: None})
    plan.links[tmp_path / "hook"] = Path("/lib/hook")
    assert summary(plan).splitlines() == [
        f"link {tmp_path}/hook -> /lib/hook",
        f"change {conf}: 2 lines are added, 1 line is removed",
        f"make {new}: 2 lines are added",
        f"remove {old}: 1 line is removed",
    ]
    assert summary(FileChanges(texts={conf: "A=1\nB=2\n"})) == ""
