"""A site that has all kinds of scripts, accounts and two pods: all of it goes on working."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.outer.lab import ALICE, BOB, LabError, Release, SlurmLab, poll
from tests.outer.slurm.site import SiteLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
SHOW = "echo $IPUOF_VIPU_API_PARTITION_ID $PBS_JOBID"


@pytest.fixture(scope="module")
def cluster(release: Release) -> Iterator[SiteLab]:
    with SiteLab(nodes=2, cpus=16, release=release) as made:
        yield made


@pytest.fixture
def lab(cluster: SiteLab) -> Iterator[SiteLab]:
    yield cluster
    left = [str(job.id) for job in cluster.jobs().values() if not job.over]
    if left:
        cluster.run("scancel", *left)
    cluster.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    cluster.wait_free()


def accounted(lab: SiteLab, job: int) -> dict[str, str]:
    """What the accounts say that a job had."""

    def said() -> str:
        return lab.ok("sacct", "-n", "-X", "-P", "-j", str(job), "-o", "AllocTRES").strip()

    return dict(word.split("=") for word in poll("its accounts", said).split(","))


def test_all_scripts_of_the_site_run_beside_ours(lab: SiteLab) -> None:
    script = f"#!/bin/sh\n#BB_lua\nsrun sh -c '{SHOW}'\n"
    job = lab.batch(script, "--ipus=8", "-n1", "-L", "matlab:1")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert lab.output(job).split() == [f"slurm_{job}", str(job)]
    fields = lab.job(job).fields
    assert fields["Comment"] == "seen by the site"
    assert {"matlab:1", "ipu:8"} <= set(fields["Licenses"].split(","))
    names = ("prolog", "epilog", "setup", "pre_run", "job_teardown")
    poll("the site's scripts", lambda: all(lab.seen(name, job) for name in names))
    plain = lab.batch("true", "-o", "/dev/null")
    assert lab.wait_over(plain)[plain].state == "COMPLETED"
    assert lab.seen("prolog", plain)
    done = lab.run("sbatch", "-J", "forbidden", "--ipus=4", "--wrap=true", user=ALICE)
    assert done.returncode != 0
    assert "the site forbids this name" in done.stderr


@pytest.mark.soak
def test_a_job_cancelled_while_it_stages_in_holds_nothing(lab: SiteLab) -> None:
    slow = lab.folder / "seen" / "slow"
    slow.touch()
    try:
        job = lab.batch("#!/bin/sh\n#BB_lua\ntrue\n", "--ipus=8", "-n1")
        poll("its staging", lambda: lab.seen("setup", job))
        assert lab.job(job).state == "PENDING"
        assert lab.held() == 0
        lab.ok("scancel", str(job))
        assert lab.wait_over(job)[job].state == "CANCELLED"
    finally:
        slow.unlink()
    assert lab.held() == 0


@pytest.mark.soak
@pytest.mark.parametrize("devices", [["--ipus=8"], ["--ipus=8", ":", "--ipus=8"]])
def test_a_prolog_of_the_sites_that_fails_is_tried_three_times(
    lab: SiteLab, devices: list[str]
) -> None:
    bad = lab.folder / "seen" / "prolog.bad"
    bad.touch()
    try:
        job = lab.batch("true", *devices, "-o", "/dev/null")
        poll("held", lambda: lab.job(job).reason == "JobHeldAdmin", seconds=120, every=0.3)
    finally:
        bad.unlink()
    said = lab.ok("squeue", "-h", "-j", str(job), "-O", "admin_comment:500")
    assert "try 3 of 3 failed: podwright: job " in said
    assert f"{lab.folder}/prolog.site ended with 3. Held: when that is mended" in said
    assert f"scontrol release {job}" in said
    assert lab.held() == 0
    told = lab.command("vipu", "explain", "--job", str(job), *lab.site_option(), user="root")
    assert "ended with 3. Held" in told.stdout, told.stderr
    lab.ok("scontrol", "release", str(job))
    assert lab.wait_over(job, seconds=90)[job].state == "COMPLETED"


def test_several_kinds_of_pod_stand_side_by_side(lab: SiteLab) -> None:
    jobs = {
        kind: lab.batch("sleep 600", "--ipus=16", f"--gres=vipu:{kind}", "-o", "/dev/null")
        for kind in ("pod64", "pod16")
    }
    lab.wait_state(jobs["pod64"], "RUNNING")
    lab.wait_state(jobs["pod16"], "RUNNING")
    at = lab.partitions()
    assert at[f"slurm_{jobs['pod64']}"].cluster == "podA"
    assert at[f"slurm_{jobs['pod16']}"].cluster == "podB"
    waits = lab.batch("true", "--ipus=4", "--gres=vipu:pod16", "-o", "/dev/null")
    passes = lab.batch("true", "--ipus=4", "-o", "/dev/null")
    assert lab.wait_over(passes)[passes].state == "COMPLETED"
    poll("Slurm's reason", lambda: lab.job(waits).reason == "Licenses")
    lab.ok("scancel", str(jobs["pod16"]))
    assert lab.wait_over(waits)[waits].state == "COMPLETED"
    assert accounted(lab, waits)["license/pod16"] == "4"
    done = lab.run("sbatch", "--ipus=32", "--gres=vipu:pod16", "--wrap=true", user=ALICE)
    assert "pod16 has 16" in done.stderr


def test_accounts_and_limits_are_in_devices(lab: SiteLab) -> None:
    lab.account("modify", "user", ALICE, "set", "grptres=license/ipu=16")
    shown = ("scontrol", "show", "assoc_mgr", "flags=assoc", f"users={ALICE}")
    try:
        poll("slurmctld knows it", lambda: "license/ipu=16(" in lab.ok(*shown))
        first = lab.batch("sleep 600", "--ipus=16", "-o", "/dev/null")
        lab.wait_state(first, "RUNNING")
        second = lab.batch("true", "--ipus=4", "-o", "/dev/null")
        poll("the limit", lambda: lab.job(second).reason.startswith("AssocGrp"))
        other = lab.batch("true", "--ipus=16", "-o", "/dev/null", user=BOB)
        assert lab.wait_over(other)[other].state == "COMPLETED"
        assert lab.job(second).state == "PENDING"
        lab.ok("scancel", str(first))
        assert lab.wait_over(second)[second].state == "COMPLETED"
        assert accounted(lab, first)["license/ipu"] == "16"
        assert accounted(lab, second)["license/ipu"] == "4"
        assert not any("_x" in name for name in accounted(lab, second))
    finally:
        lab.account("modify", "user", ALICE, "set", "grptres=license/ipu=-1")


def test_a_heterogeneous_job_over_its_limit_waits_and_starts_when_it_may(lab: SiteLab) -> None:
    """It is offered devices in vain, which are then another user's."""
    lab.account("modify", "user", ALICE, "set", "grptres=license/ipu=16")
    show = ("scontrol", "show", "assoc_mgr", "flags=assoc", f"users={ALICE}")
    part = ["--ipus=8", "-n1"]
    try:
        poll("slurmctld knows it", lambda: "license/ipu=16(" in lab.ok(*show))
        first = lab.batch("sleep 600", "--ipus=16", "-n1", "-o", "/dev/null")
        lab.wait_state(first, "RUNNING")
        both = lab.batch("true", *part, ":", *part, "-o", "/dev/null")
        vain = f"job {both} was not started within the window"
        poll("an offer in vain", lambda: vain in lab.service_log(), seconds=90)
        held = {str(first)}
        poll("what was set aside", lambda: lab.state()["pods"]["pod64"]["held"].keys() == held)
        other = lab.batch("true", "--ipus=32", "-o", "/dev/null", user=BOB)
        assert lab.wait_over(other)[other].state == "COMPLETED"
        assert lab.job(f"{both}+0").state == "PENDING"
        lab.ok("scancel", str(first))
        jobs = lab.wait_over(first, both, both + 1, seconds=90)
        assert {jobs[both].state, jobs[both + 1].state} == {"COMPLETED"}
    finally:
        lab.account("modify", "user", ALICE, "set", "grptres=license/ipu=-1")


def shares(lab: SiteLab) -> dict[str, tuple[int, float]]:
    """What each user has used, and his fair share by that, as sshare shows it."""
    said = lab.ok("sshare", "-n", "-P", "-a", "-o", "User,RawUsage,FairShare")
    rows = [line.split("|") for line in said.splitlines()]
    return {user: (int(used), float(share)) for user, used, share in rows if user.strip()}


def test_fair_share_puts_a_user_of_more_devices_later(lab: SiteLab) -> None:
    """By devices, not by processors: of those Bob used more."""
    weights = "tresbillingweights=license/ipu=1"
    lab.ok("scontrol", "update", "partitionname=main", weights)
    for user in (ALICE, BOB):
        who = ["where", f"user={user}", "account=science"]
        lab.account("modify", "user", *who, "set", "rawusage=0")
    # However slow the machine is, the one of many devices has them for the longer time.
    gate = lab.folder / "out" / "both-ran"
    wait = f"until test -e {gate}; do sleep 0.1; done"
    much = lab.batch(wait, "--ipus=32", "-n1", "-o", "/dev/null")
    lab.wait_state(much, "RUNNING")
    little = lab.batch("sleep 2", "--ipus=4", "-n1", "-c8", "-o", "/dev/null", user=BOB)
    lab.wait_over(little)
    gate.touch()
    jobs = lab.wait_over(much, little)
    for job, devices in ((much, 32), (little, 4)):
        fields = jobs[job].fields
        assert f"billing={devices}," in fields.get("TRES", "") + fields.get("AllocTRES", "")

    def counted() -> bool:
        used = shares(lab)
        return used[BOB][0] >= 4 and used[ALICE][0] > 3 * used[BOB][0]

    poll("their usage", counted)
    # Fair shares follow each PriorityCalcPeriod, a minute at least, and when slurmctld starts.
    lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    poll("their shares", lambda: shares(lab)[BOB][1] > shares(lab)[ALICE][1])

    first = lab.batch("sleep 600", "--ipus=64", "-n1", "-o", "/dev/null", user="root")
    lab.wait_state(first, "RUNNING")
    waiting = {
        user: lab.batch("sleep 600", "--ipus=64", "-n1", "-o", "/dev/null", user=user)
        for user in (ALICE, BOB)
    }
    said = lab.ok("sprio", "-h", "-o", "%i %F").split()
    factors = dict(zip(map(int, said[::2]), map(int, said[1::2]), strict=True))
    assert factors[waiting[BOB]] > factors[waiting[ALICE]]
    lab.ok("scancel", str(first))
    lab.wait_state(waiting[BOB], "RUNNING")
    assert lab.job(waiting[ALICE]).state == "PENDING"


def test_what_slurm_schedules_is_closed_to_others(lab: SiteLab) -> None:
    job = lab.batch("sleep 600", "--ipus=8", "-o", "/dev/null")
    poll("its partition", lambda: lab.partitions().get(f"slurm_{job}"))
    for user in (ALICE, BOB):
        mine = ["create", "partition", "mine", "--size", "4"]
        done = lab.command("vipu", *mine, "--allocation", "jobs", user=user)
        assert done.returncode != 0
        assert "sched" in done.stderr
    done = lab.command("vipu", "remove", "partition", f"slurm_{job}", "--force", user=BOB)
    assert f"it belongs to {ALICE}" in done.stderr
    assert set(lab.partitions()) == {f"slurm_{job}"}


def test_no_job_goes_to_a_cluster_that_would_drop_its_devices(lab: SiteLab) -> None:
    """-M, wherever it is said, to a Slurm of the same accounts that has no Podwright."""
    shared = {key: lab.settings[key] for key in (*lab.accounts_keys, "AuthInfo")}
    lab.account("add", "cluster", "other")
    conf = {"ClusterName": "other", **shared}
    with SlurmLab(nodes=1, cpus=4, release=lab.release, conf=conf) as other:
        known = ("sacctmgr", "-n", "-P", "show", "cluster", "other", "format=ControlPort")
        poll("its address", lambda: lab.ok(*known).strip() not in ("", "0"))
        plain = ("sbatch", "--parsable", "-M", "other", "-o", "/dev/null", "--wrap=true")
        assert lab.ok(*plain, user=ALICE) == "1;other\n"
        other.wait_over(1)
        tried: list[tuple[list[str], dict[str, str], str | None]] = [
            (["sbatch", "-M", "other", "--ipus=4", "--wrap=true"], {}, None),
            (["sbatch", "--ipus=4"], {}, "#!/bin/sh\n#SBATCH --clusters=lab,other\ntrue\n"),
            (["sbatch", "--ipus=4", ":", "-M", "other", "--wrap=true"], {}, None),
            (["sbatch", "--ipus=4", "--wrap=true"], {"SBATCH_CLUSTERS": "other"}, None),
            (["srun", "--ipus=4", "true"], {"SLURM_CLUSTERS": "other"}, None),
            (["salloc", "-M", "other", "--ipus=4", "true"], {}, None),
        ]
        for argv, env, script in tried:
            done = lab.run(*argv, user=ALICE, env=env, stdin=script)
            assert done.returncode != 0, argv
            assert "cluster other has no Podwright" in done.stderr, (argv, done.stderr)
        done = lab.run("sbatch", "-M", "nowhere", "--ipus=4", "--wrap=true", user=ALICE)
        assert "nowhere is not known here" in done.stderr, done.stderr
        assert set(other.jobs()) == {1}
        job = lab.batch("true", "-M", "lab", "--ipus=4", "-o", "/dev/null")
        assert lab.wait_over(job)[job].state == "COMPLETED"
        assert accounted(lab, job)["license/ipu"] == "4"
        # In a federation a job goes to every member at once, and the first that has room runs it.
        lab.account("add", "federation", "both", "clusters=lab,other")
        poll("the federation", lambda: "Synced:Yes" in lab.run("scontrol", "show", "fed").stdout)
        try:
            full = lab.batch("sleep 600", "--ipus=64", "-o", "/dev/null")
            poll("all devices held", lambda: lab.held() == 64)
            waits = lab.batch("true", "--ipus=4", "-o", "/dev/null")
            moved = lab.run("scontrol", "update", f"jobid={waits}", "clusters=other", user=ALICE)
            assert moved.returncode != 0
            lab.ok("scancel", str(full))
            assert lab.wait_over(waits)[waits].state == "COMPLETED"
            assert accounted(lab, waits)["license/ipu"] == "4"
            assert set(other.jobs()) == {1}
        finally:
            lab.account("delete", "federation", "both")
            poll("its end", lambda: "Self" not in lab.run("scontrol", "show", "fed").stdout)


def restart(lab: SiteLab) -> None:
    """slurmctld, with what its files say now."""
    lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)


def test_taken_back_the_site_is_as_it_was(lab: SiteLab) -> None:
    """Slurm goes on without us; and, for the other tests, with us again."""
    conf = lab.folder / "slurm.conf"
    text = conf.read_text()
    conf.write_text(text + "PriorityWeightTRES=license/ipu=5\n")
    with pytest.raises(LabError, match="PriorityWeightTRES=license/ipu=5"):
        lab.configure("--undo")  # slurmctld would not start any more
    conf.write_text(text)
    lab.configure("--undo")
    assert lab.before_us() == lab.original
    restart(lab)
    job = lab.batch("true", "-o", "/dev/null")
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert lab.seen("epilog", job)
    assert lab.job(job).fields["Comment"] == "seen by the site"
    done = lab.run("sbatch", "--ipus=4", "--wrap=true", user=ALICE)
    assert done.returncode != 0
    lab.configure("--write")
    restart(lab)
