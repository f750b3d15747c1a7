"""The labs themselves: if these fail, nothing else in the ring means anything."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.outer.lab import (
    ALICE,
    BOB,
    HostsLab,
    Release,
    SlurmLab,
    poll,
    release,
    sweep_dead_labs,
    written_at,
)
from tests.outer.lab._folder import new_folder, processes_of, remove
from tests.outer.lab._hosts import CHECKOUT

pytestmark = [pytest.mark.outer]


@pytest.mark.slurm
@pytest.mark.parametrize("slurm_user", ["root", "slurm"])
def test_jobs_of_two_users_run_on_every_node(
    slurm_lab: Callable[..., SlurmLab], every_release: Release, slurm_user: str
) -> None:
    lab = slurm_lab(nodes=3, release=every_release, user=slurm_user)
    assert lab.ok("sinfo", "-V").split()[1].startswith("{}.{:02}".format(*every_release.version))
    assert Path(f"/proc/{lab.daemon_pid('slurmctld')}").owner() == slurm_user
    jobs = [lab.submit("srun -l id -un", "-N3", user=user) for user in (ALICE, BOB)]
    lab.wait_over(*jobs)
    for job, user in zip(jobs, (ALICE, BOB), strict=True):
        assert lab.job(job).state == "COMPLETED"
        out = (lab.folder / "out" / f"slurm-{job}.out").read_text()
        assert sorted(out.splitlines()) == [f"{k}: {user}" for k in range(3)]


@pytest.mark.slurm
def test_two_labs_side_by_side_do_not_meet(slurm_lab: Callable[..., SlurmLab]) -> None:
    one, two = slurm_lab(nodes=1), slurm_lab(nodes=2)
    first = one.submit("sleep 600")
    one.wait_state(first, "RUNNING")
    assert two.jobs() == {}
    two.stop()
    assert one.job(first).state == "RUNNING"
    one.ok("scancel", str(first))
    one.wait_over(first)


@pytest.mark.slurm
def test_killed_daemons_come_back_with_their_jobs(
    slurm_lab: Callable[..., SlurmLab], every_release: Release
) -> None:
    lab = slurm_lab(nodes=1, release=every_release)
    begun = lab.folder / "out" / "begun"
    job = lab.submit(f"touch {begun}; sleep 600")
    poll("its first line", begun.exists)  # RUNNING it is before its node has heard of it
    lab.ok("scontrol", "reconfigure")
    saved, running = lab.folder / "state" / "job_state", time.time()
    lab.ok("scontrol", "update", f"jobid={job}", "comment=saved")
    poll("state saved", lambda: written_at(saved) > running)
    for daemon in ("slurmctld", "n1"):
        pid = lab.daemon_pid(daemon)
        lab.kill_daemon(daemon)
        assert not Path(f"/proc/{pid}").exists()
        lab.start_daemon(daemon)
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    assert lab.wait_state(job, "RUNNING").reason == "None"
    lab.wait_for_nodes("mix")


def test_a_stopped_lab_leaves_no_process_and_no_folder() -> None:
    lab = SlurmLab(nodes=1)
    lab.start()
    job = lab.submit("sleep 60")
    lab.wait_state(job, "RUNNING")
    assert len(processes_of(lab.folder)) >= 4
    lab.stop()
    assert processes_of(lab.folder) == []
    assert not lab.folder.exists()


def test_what_works_in_a_lab_is_ended_though_its_environment_is_gone() -> None:
    folder = new_folder()
    with subprocess.Popen(["/bin/sleep", "600"], cwd=folder / "out", env={}) as process:
        try:
            assert processes_of(folder) == [process.pid]
        finally:
            process.kill()
    remove(folder)


def test_a_dead_labs_remains_are_swept_and_a_living_ones_kept() -> None:
    living, dead = new_folder(), new_folder()
    (dead / "owner").write_text(f"{os.getpid()} 1\n")  # the same number, another process
    sweep_dead_labs()
    assert not dead.exists()  # another session may have begun, and swept it
    assert living.exists()
    (living / "owner").write_text("0 0\n")
    sweep_dead_labs()
    assert not living.exists()


def test_hosts_have_names_and_reach_each_other_by_ssh(hosts_lab: Callable[..., HostsLab]) -> None:
    lab = hosts_lab("a", "b", "c", "d")
    for name in lab.names:
        assert lab.exec(name, "hostname").stdout == f"{name}\n"
    done = lab.exec("a", "ssh", "-o", "BatchMode=yes", "d", "hostname")
    assert (done.stdout, done.returncode) == ("d\n", 0)
    lab.exec("a", "touch", "/tmp/only-on-a")
    assert "only-on-a" not in lab.exec("b", "ls", "/tmp").stdout


def test_no_process_of_a_host_names_the_checkout(hosts_lab: Callable[..., HostsLab]) -> None:
    """Tests look for what is left by words that a checkout's path may contain, as "podwright"."""
    lines = hosts_lab("n1").exec("n1", "ps", "-ww", "-eo", "args=").stdout
    assert " init n1 " in lines
    assert str(CHECKOUT) not in lines


def test_a_crashed_host_is_gone_and_comes_back(hosts_lab: Callable[..., HostsLab]) -> None:
    lab, other = hosts_lab("a", "b"), hosts_lab("a", "b")
    lab.kill("b")
    assert not lab.is_up("b")
    ssh = ("ssh", "-o", "BatchMode=yes")
    assert lab.exec("a", *ssh, "-o", "ConnectTimeout=1", "b", "true").returncode == 255
    assert other.exec("a", *ssh, "b", "hostname").stdout == "b\n"
    lab.revive("b")
    poll("its answer", lambda: lab.exec("a", *ssh, "b", "hostname").stdout == "b\n")


@pytest.mark.slurm
@pytest.mark.parametrize(("name", "slurm_user"), [("oldest", "root"), ("newest", "slurm")])
def test_slurm_over_hosts(
    hosts_lab: Callable[..., HostsLab],
    slurm_lab: Callable[..., SlurmLab],
    name: str,
    slurm_user: str,
) -> None:
    hosts = hosts_lab("ctl", "n1", "n2")
    lab = slurm_lab(hosts=hosts, release=release(name), user=slurm_user)
    job = lab.submit("srun hostname", "-N2", user=ALICE)
    assert lab.wait_over(job)[job].state == "COMPLETED"
    out = (lab.folder / "out" / f"slurm-{job}.out").read_text()
    assert sorted(out.split()) == ["n1", "n2"]
