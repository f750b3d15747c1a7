"""Sites whose SlurmUser is `slurm`: hooks run as that user, and the service as root or as it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, Release
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID"


@pytest.fixture(scope="module", params=["root", "slurm"])
def lab(release: Release, request: pytest.FixtureRequest) -> Iterator[NativeLab]:
    with NativeLab(nodes=2, cpus=8, release=release, user="slurm", served_by=request.param) as made:
        yield made


def test_jobs_find_their_devices_and_leave_nothing(lab: NativeLab) -> None:
    job = lab.batch(f"srun sh -c '{SHOW}'", "--ipus=4", "-n1")
    assert lab.wait_over(job)[job].state == "COMPLETED", lab.log()[-2000:]
    assert lab.output(job) == f"slurm_{job}\n"
    done = lab.run("srun", "--ipus=2", "-n1", "sh", "-c", SHOW, user=ALICE)
    assert done.stdout.startswith("slurm_"), done.stderr
    lab.wait_free()
    assert lab.job(job).fields["Restarts"] == "0"


def test_only_root_and_slurms_user_may_call_the_service(lab: NativeLab) -> None:
    ask = ["curl", "-sS", "--unix-socket", str(lab.hooks_socket), "http://x/slurm.v1/State"]

    def asked(user: str) -> subprocess.CompletedProcess[str]:
        who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        return subprocess.run([*who, *ask], capture_output=True, text=True, check=False)

    for user in ("root", "slurm"):
        assert '"pods"' in asked(user).stdout
    assert asked(ALICE).returncode != 0
    if lab.served_by == "root":
        lab.hooks_socket.chmod(0o666)  # whatever the mode: the kernel says who calls
        assert "is not Slurm's" in asked(ALICE).stdout


def test_slurmctlds_log_says_why_a_hook_did_not_reach_the_service(lab: NativeLab) -> None:
    conf = lab.folder / "podwright" / "hook.conf"
    before = conf.read_text()
    conf.write_text(before.replace("prolog-seconds 60", "prolog-seconds 1"))
    try:
        lab.hooks_socket.parent.chmod(0o700)
        shutil.chown(lab.hooks_socket.parent, "root")
        done = lab.run("srun", "--ipus=2", "-n1", "true", user=ALICE)
        assert done.returncode != 0
        assert f"unix:{lab.hooks_socket}: Permission denied" in lab.log()
    finally:
        lab.hooks_socket.parent.chmod(0o755)
        shutil.chown(lab.hooks_socket.parent, "slurm")
        conf.write_text(before)
    lab.wait_free()
