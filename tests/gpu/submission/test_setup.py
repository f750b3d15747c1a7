"""job_submit.lua comes before the site's own, behind that of pods, and goes without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.gpu.submission import Places, configure, take_back
from podwright.slurm.site.file_changes import FileChanges, carry_out

OWN = "-- the site's\nfunction slurm_job_submit() return slurm.SUCCESS end\n"
PODS = "-- Podwright's part of job_submit: turns --ipus into licences\n"
CONF = "ClusterName=c\n#JobSubmitPlugins=\nJobSubmitPlugins=require_timelimit # ours\n"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "ask.so").touch()
    return Places(tmp_path / "slurm.conf", tmp_path / "ask.so", tmp_path / "lint.sock")


def files(places: Places) -> dict[str, str]:
    return {path.name: path.read_text() for path in places.slurm_conf.parent.iterdir()}


@pytest.mark.parametrize(
    "there",
    [
        {},
        {"job_submit.lua": OWN},
        {"job_submit.lua": PODS},
        {"job_submit.lua": PODS, "job_submit.site.lua": OWN},
    ],
)
def test_the_lint_at_submission_is_set_up_and_taken_back(
    places: Places, there: dict[str, str]
) -> None:
    for name, text in there.items():
        (places.slurm_conf.parent / name).write_text(text)
    before = files(places)
    carry_out(configure(places, "warn"))
    carry_out(configure(places, "refuse"))  # again, otherwise
    after = files(places)
    behind = "job_submit.site.lua" if PODS in there.values() else "job_submit.lua"
    assert "local refuses = true" in after[behind]
    assert "@" not in after[behind].replace("-- @", "")
    assert (OWN in after.values()) == (OWN in there.values())
    assert "JobSubmitPlugins=require_timelimit,lua #podwright-lint\n" in after["slurm.conf"]
    carry_out(take_back(places.slurm_conf))
    assert files(places) == before


def test_a_site_with_lua_keeps_its_setting(places: Places) -> None:
    places.slurm_conf.write_text("JobSubmitPlugins=lua\n")
    plan = configure(places, "warn")
    assert places.slurm_conf not in plan.texts


def test_what_was_compiled_must_be_there(places: Places) -> None:
    places.library.unlink()
    with pytest.raises(InvalidRequest, match="build --lint"):
        configure(places, "warn")


def test_taking_back_what_was_not_set_up_changes_nothing(places: Places) -> None:
    assert take_back(places.slurm_conf) == FileChanges()
