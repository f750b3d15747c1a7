"""`podwright slurm check` says NO where a site is broken as sites were seen to be (issue 9).

Each fault is what a hook, a plugin, a script or a file of an older Podwright did on a newer Slurm,
or what somebody did to the files. The static way's is in tests/guests/slurm/ways/test_check.py.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.outer.lab import Release
from tests.outer.lab import release as find_release
from tests.outer.slurm.native import PODWRIGHT, NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

_later = itertools.count(10, 10)
#: An old hook: what it did not know, and then the hook of today.
HOOK = "#!/bin/sh\n{fault}\nexec @LAB@/podwright/today/prolog-slurmctld\n"
BLIND = "case $SLURM_JOB_LICENSES in *';'*) exit 0 ;; esac"
#: The record that a part had of its leader.
OF_LEADER = "if [ ${SLURM_HET_JOB_OFFSET:-0} -gt 0 ]; then export SPANK_IPUS=1; fi"
LOST = "if [ ${SLURM_JOB_RESTART_COUNT:-0} -gt 0 ]; then unset SLURM_JOB_LICENSES; fi"


@pytest.fixture(scope="module", params=["newest"])
def release(request: pytest.FixtureRequest) -> Release:
    return find_release(request.param)


@pytest.fixture(scope="module")
def lab(release: Release) -> Iterator[NativeLab]:
    with NativeLab(nodes=2, cpus=8, release=release, user="slurm") as made:
        (made.folder / "podwright/today").mkdir()
        hook = made.folder / "podwright/today/prolog-slurmctld"
        hook.symlink_to(made.folder / "native/podwright-hook")
        shutil.copy(made.folder / "podwright/hook.conf", hook.parent)
        yield made


@contextmanager
def edited(lab: NativeLab, name: str, change: Callable[[str], str]) -> Iterator[None]:
    """A file of the lab, changed for a while. slurmctld reads a script again when it is later."""
    path = lab.folder / name
    before = path.read_text()
    after = change(before)
    assert after != before, name

    def write(text: str) -> None:
        path.write_text(text)
        os.utime(path, times=(time.time() + next(_later),) * 2)

    write(after)
    try:
        yield
    finally:
        write(before)


@contextmanager
def hook(lab: NativeLab, fault: str) -> Iterator[None]:
    """Another PrologSlurmctld, and steps that ask nobody, as before there was a proof of them."""
    path = lab.folder / "podwright/prolog-slurmctld"
    path.unlink()
    lab.write("podwright/prolog-slurmctld", HOOK.format(fault=fault))
    try:
        with edited(lab, "plugstack.conf", without_proofs):
            yield
    finally:
        path.unlink()
        path.symlink_to(lab.folder / "native/podwright-hook")


def without_proofs(text: str) -> str:
    return " ".join(word for word in text.split(" ") if not word.startswith("prove="))


def check(
    lab: NativeLab, only: str, *, site: str = "native.toml", wait: int = 300
) -> dict[str, str]:
    """What is wrong, by promise. wait: seconds for each job; where nothing comes, all of them."""
    where = ["--site", f"{lab.folder}/podwright/{site}", "--only", only, "--wait", str(wait)]
    done = lab.podwright("slurm", "check", "--json", *where)
    rows = json.loads(done.stdout or "[]")
    assert rows, done.stderr
    wrong = {row["promise"]: row["problem"] for row in rows if not row["kept"]}
    assert done.returncode == bool(wrong)
    return wrong


def no(lab: NativeLab, promise: str, *, site: str = "native.toml", wait: int = 300) -> str:
    """It says NO to this promise; why."""
    (why,) = check(lab, promise, site=site, wait=wait).values()
    lab.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    return why


@pytest.mark.soak
def test_a_sound_site_keeps_every_promise(lab: NativeLab) -> None:
    """In soak alone: test_admin_page.py proves the same of the newest as user slurm."""
    assert check(lab, "") == {}


def test_check_finds_a_hook_with_which_requeued_jobs_have_no_devices(lab: NativeLab) -> None:
    """Slurm writes ; since 25.05, which the hook did not know, and no step asked."""
    with hook(lab, BLIND):
        why = no(lab, "a job that goes back to the queue has its devices again", wait=60)
        # The step proof holds it; where that is broken as well, it would be RUNNING here.
        assert "it did not run again with its partition" in why
        assert "prolog-slurmctld is not podwright-hook" in no(lab, "its files are as configure")


def test_check_finds_a_service_that_slurms_user_may_not_reach(lab: NativeLab) -> None:
    folder = lab.hooks_socket.parent
    shutil.chown(folder, "root")
    folder.chmod(0o700)
    try:
        why = no(lab, "Slurm's hooks reach the service")
    finally:
        folder.chmod(0o755)
        shutil.chown(folder, "slurm")
    assert "permission denied for slurm: serve as root or SlurmUser" in why


def test_check_finds_a_plugin_of_another_release(lab: NativeLab, tmp_path: Path) -> None:
    built = [*PODWRIGHT, "slurm", "build", "--into", str(tmp_path)]
    subprocess.run(built, check=True, capture_output=True)
    tmp_path.chmod(0o755)
    plugin = f"{tmp_path}/spank_podwright.so"
    shutil.copy(plugin, lab.folder / "other.so")
    ours, other = f"{lab.folder}/native/spank_podwright.so", f"{lab.folder}/other.so"
    with edited(lab, "plugstack.conf", lambda text: text.replace(ours, other)):
        assert "--ipus" in no(lab, "a job and its task find their partition")


def test_check_finds_a_job_submit_that_writes_counts_as_fractions(lab: NativeLab) -> None:
    def floats(text: str) -> str:
        return text.replace("podwright_gcds:%d", "podwright_gcds:%.1f")

    with edited(lab, "job_submit.lua", floats):
        assert "nvalid license" in no(lab, "a job and its task find their partition")


def test_check_finds_a_hook_that_gives_parts_their_leaders_devices(lab: NativeLab) -> None:
    with hook(lab, OF_LEADER):
        assert "by --ipus" in no(lab, "parts of different sizes keep them")


def test_check_finds_a_job_submit_that_takes_forged_licences(lab: NativeLab) -> None:
    with edited(lab, "job_submit.lua", lambda text: text.replace('"[^,;|]+"', '"[^,]+"')):
        why = no(lab, "licences that a user asks for by name are refused")
    assert "-L 'ipu;ipu_x1:1' was not refused" in why


def test_check_finds_a_line_of_ours_that_the_site_edited(lab: NativeLab) -> None:
    def other(text: str) -> str:
        return text.replace("GresTypes=vipu", "GresTypes=vipu,gpu")

    with edited(lab, "slurm.conf", other):
        why = no(lab, "its files are as configure")
    assert "was edited: GresTypes=vipu,gpu" in why
    assert "off its end" in why  # what to do


def test_check_finds_licences_that_slurm_does_not_have(lab: NativeLab) -> None:
    def fewer(text: str) -> str:
        return text.replace("ipu_x8:64", "ipu_x8:32")

    with edited(lab, "slurm.conf", fewer):
        lab.ok("scontrol", "reconfigure")
        lab.wait_for_nodes()
        why = no(lab, "Slurm runs with what configure wrote")
    lab.ok("scontrol", "reconfigure")
    lab.wait_for_nodes()
    assert "32 of licence ipu_x8, the site 64" in why


def test_check_finds_an_address_at_which_no_server_is(lab: NativeLab) -> None:
    wrong = f"port={lab.port}", "port=1"
    with edited(lab, "plugstack.conf", lambda text: text.replace(*wrong)):
        assert "nothing answers at localhost:1 on n" in no(lab, "and its server")


def test_check_finds_too_little_time_for_heterogeneous_jobs(lab: NativeLab) -> None:
    site = (lab.folder / "podwright/native.toml").read_text()
    lab.write("podwright/short.toml", site.replace("window_s = 10.0", "window_s = 3.0"))
    why = no(lab, "heterogeneous jobs have time", site="short.toml")
    assert "they have 3 s, and with Slurm's bf_interval need 10" in why


def test_check_finds_a_slurm_that_loses_licences_at_a_requeue(lab: NativeLab) -> None:
    """25.05 to 25.11.6."""
    with hook(lab, LOST):
        why = no(lab, "a job that goes back to the queue has its devices again")
    assert "by --ipus, and Slurm counts" in why
