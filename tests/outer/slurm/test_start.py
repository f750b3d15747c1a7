"""A job that asked for devices never starts an instruction without them, whatever its hook does.

Slurm passes a PrologSlurmctld that a signal ended, and one that was missing when slurmctld began
(24.11 one that went missing later as well): so each step asks the service itself before it begins.
What cannot be had is said, and nothing drains.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.outer.lab import ALICE, poll
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

#: The first thing that each of these jobs does.
MARK = "echo began >>@LAB@/out/began-$SLURM_JOB_ID"


@pytest.fixture(scope="module")
def lab(release: Path | None) -> Iterator[NativeLab]:
    with NativeLab(nodes=2, cpus=8, release=release) as made:
        yield made


@pytest.fixture(autouse=True)
def _mended(lab: NativeLab) -> Iterator[None]:
    """Each test finds the hook as it was set up, and an empty cluster."""
    yield
    mended(lab)
    if not lab.runs("service"):
        lab.start_service()
        lab.wait_for_service()
    left = [str(job.id) for job in lab.jobs().values() if not job.over]
    if left:
        lab.run("scancel", *left)
    lab.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    lab.wait_free()


def hook(lab: NativeLab) -> Path:
    return lab.folder / "podwright" / "prolog-slurmctld"


def broken(lab: NativeLab, how: str) -> None:
    """The hook, as it should not be."""
    path = hook(lab)
    path.unlink(missing_ok=True)
    if how == "killed":
        lab.write("podwright/prolog-slurmctld", "#!/bin/sh\nkill -9 $$\n")
    elif how == "empty":
        path.touch(0o755)
    elif how == "without its library":
        name = "libpodwrightgone"
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", f"{name}.so"],
                       cwd=lab.folder, check=True)  # fmt: skip
        code = "int main(void) { return 0; }"
        subprocess.run(["gcc", "-x", "c", "-", "-o", str(path), "-x", "none",
                        "-Wl,--no-as-needed", f"./{name}.so"],
                       cwd=lab.folder, check=True, input=code.encode())  # fmt: skip
        (lab.folder / f"{name}.so").unlink()
    else:
        assert how == "missing"


def restart_slurmctld(lab: NativeLab) -> None:
    lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)


def began(lab: NativeLab, job: int) -> bool:
    return (lab.folder / "out" / f"began-{job}").exists()


def comment(lab: NativeLab, job: int) -> str:
    """Its AdminComment, which `scontrol` shows only on newer releases."""
    return lab.ok("squeue", "-h", "-j", str(job), "-O", "admin_comment:400").strip()


def held(lab: NativeLab, job: int) -> str:
    """The job is held, and this is why."""
    lab.wait(f"job {job} held", lambda jobs: jobs[job].fields["Priority"] == "0"
             and jobs[job].state == "PENDING")  # fmt: skip
    return comment(lab, job)


def submitted(lab: NativeLab, *options: str) -> int:
    script = MARK.replace("@LAB@", str(lab.folder))
    return lab.batch(script, "--ipus=4", "-o", "/dev/null", *options)


@pytest.mark.parametrize("how", ["killed", "missing", "empty", "without its library"])
def test_without_its_hook_nothing_begins(lab: NativeLab, how: str) -> None:
    broken(lab, how)
    refused = lab.state()["figures"]["unproven"]
    job = submitted(lab)
    if how == "killed":
        assert "did not run to its end" in held(lab, job)
        assert lab.state()["figures"]["unproven"] == refused + 1
        assert lab.run("srun", "echo", "as ever", user=ALICE).stdout == "as ever\n"
    else:  # Slurm sees for itself that such a hook failed; 24.11 does not where it is missing
        poll("requeued", lambda: lab.job(job).fields["Restarts"] != "0")
        if "did not run to its end" in comment(lab, job):
            held(lab, job)
    assert not began(lab, job)
    nothing_begins(lab)
    mended(lab)
    lab.start_again(job)
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert began(lab, job)


def test_a_slurmctld_that_finds_no_hook_starts_nothing(lab: NativeLab) -> None:
    """22.05 then never runs one; newer ones do not begin at all without it."""
    broken(lab, "missing")
    lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    slurmctld = lab._daemons["slurmctld"]
    poll("its word", lambda: answers(lab) or slurmctld.poll() is not None)
    if slurmctld.poll() is None:
        lab.wait_for_nodes()
        job = submitted(lab)
        assert "did not run to its end" in held(lab, job)
        assert not began(lab, job)
        nothing_begins(lab)
    mended(lab)
    if slurmctld.poll() is None:
        lab.kill_daemon("slurmctld", signal.SIGTERM)
    lab.start_daemon("slurmctld")
    poll("slurmctld", lambda: answers(lab))
    lab.wait_for_nodes()


def answers(lab: NativeLab) -> bool:
    return lab.run("scontrol", "ping").stdout.count("UP") == 1


#: Where the parts of a job say what, and how many devices each is to have. Slurm hands an option of
#: one part on to the next, and the steps of all parts what the script was handed.
PARTS = {
    ("command", "", "--ipus=4"): (0, 4),
    ("command", "--ipus=4", "--ipus=0"): (4, 0),
    ("command", "--ipus=4", "--ipus=2"): (4, 2),
    ("script", "--ipus=0", "--ipus=4"): (0, 4),
    ("script", "--ipus=4", ""): (4, 0),
    ("script", "--ipus=4", "--ipus=2"): (4, 2),
}
SHOW = 'echo "[$IPUOF_VIPU_API_PARTITION_ID]"'


def test_each_part_of_a_heterogeneous_job_has_its_own_devices(lab: NativeLab) -> None:
    gate = lab.folder / "out" / "parts"
    body = f"until test -e {gate}; do sleep 0.1; done\nsrun --het-group=0,1 sh -c '{SHOW}'\n"
    parts = {}
    for (where, *said), sizes in PARTS.items():
        words = [*f"-n1 -N1 {said[0]}".split(), ":", *f"-n1 -N1 {said[1]}".split()]
        lines = [f"#SBATCH -n1 -N1 {said[0]}", "#SBATCH hetjob", f"#SBATCH -n1 -N1 {said[1]}"]
        if where == "script":
            job = lab.batch("\n".join(["#!/bin/sh", *lines, body]))
        else:
            job = lab.batch(body, *words)
        parts[job] = {f"slurm_{job + k}": size for k, size in enumerate(sizes) if size}
    whole = {name: size for one in parts.values() for name, size in one.items()}
    poll("their devices", lambda: {k: one.size for k, one in lab.partitions().items()} == whole,
         seconds=60)  # fmt: skip
    gate.touch()
    done = lab.wait_over(*parts)
    for job, found in parts.items():
        assert done[job].state == "COMPLETED"
        shown = sorted([f"[{name}]" for name in found] + ["[]"] * (2 - len(found)))
        poll("its words", partial(_said, lab, job, shown))


def _said(lab: NativeLab, job: int, words: list[str]) -> bool:
    return sorted(lab.output(job).split()) == words


def test_licences_of_all_parts_are_not_the_first_parts_own(lab: NativeLab) -> None:
    """A part without devices begins, though Slurm counts with it what the others have."""
    job = lab.batch("true", "--hold", "-n1", "-N1", ":", "-n1", "-N1", "--ipus=4")
    # As the service itself does where such a job did not start when it might have.
    lab.ok("scontrol", "update", f"jobid={job}+0", "licenses=podwright_het_wait:1")
    lab.ok("scontrol", "release", str(job))
    assert lab.wait_over(job, job + 1)[job].state == "COMPLETED"
    assert "podwright_job" in lab.job(f"{job}+0").fields["Licenses"]


def test_a_part_whose_note_is_lost_begins_nothing_unproven(lab: NativeLab) -> None:
    """Its hook is killed, and an administrator overwrites what job_submit noted for it. What has
    its devices goes on."""
    out = f"{lab.folder}/out"
    body = f"echo begun\nuntil test -e {out}/go-$SLURM_JOB_ID; do sleep 0.1; done\n"
    body += f"export mark={out}/lost-$SLURM_JOB_ID\n"
    body += f"srun --het-group=0,1 sh -c '{SHOW} >>$mark'\n"
    job = lab.batch(body, "-n1", "-N1", "--ipus=4", ":", "-n1", "-N1", "--ipus=2")
    poll("its first step", lambda: "begun" in lab.output(job))
    written = lab.run("scontrol", "update", f"jobid={job}", "admincomment=overwritten")
    assert written.returncode == 0, written
    assert comment(lab, job + 1).startswith("ipus=2 "), "it stays what it was"
    lost = lab.run("scancel", "--admin-comment=lost", "--signal=CONT", str(job + 1))
    if lost.returncode == 0:  # since 25.11; it asks no job_submit
        poll("it is lost", lambda: comment(lab, job + 1) == "lost")
    (lab.folder / "out" / f"go-{job}").touch()
    assert lab.wait_over(job)[job].state == "COMPLETED"
    said = (lab.folder / "out" / f"lost-{job}").read_text()
    assert set(said.split()) == {f"[slurm_{job + k}]" for k in (0, 1)}


@pytest.mark.parametrize("how", ["--jobid", "SLURM_JOB_ID"])
def test_a_step_from_outside_of_its_job_has_its_devices(lab: NativeLab, how: str) -> None:
    """And none where the job has none, since its hook was killed."""
    job = without_shell(lab, "--ipus=4")
    said = from_outside(lab, how, job)
    assert said.stdout == f"[slurm_{job}]\n", said
    plain = without_shell(lab)
    # As in a job that has some.
    other = {"SLURM_SPANK_IPUS": "4", "SLURM_JOBID": str(job)}
    other |= {"IPUOF_VIPU_API_PARTITION_ID": f"slurm_{job}"}
    said = from_outside(lab, how, plain, env=other)
    assert said.stdout == "[]\n", said
    assert lab.job(plain).state == "RUNNING"
    lab.ok("scancel", str(job))
    lab.wait_over(job)
    broken(lab, "killed")
    said = from_outside(lab, how, without_shell(lab, "--ipus=4"))
    assert said.returncode != 0
    assert said.stdout == ""


@pytest.mark.parametrize(
    ("how", "second"), [("--jobid", ["--ipus=2"]), ("SLURM_JOB_ID", ["--ipus=0"])]
)
def test_a_step_from_outside_of_parts_has_each_parts_devices(
    lab: NativeLab, how: str, second: list[str]
) -> None:
    """And nothing runs in a part whose devices are gone."""
    job = without_shell(lab, "--ipus=4", "-n1", ":", *second, "-n1")
    found = [f"[slurm_{job}]", f"[slurm_{job + 1}]" if "--ipus=2" in second else "[]"]
    said = from_outside(lab, how, job, "--het-group=0,1")
    assert sorted(said.stdout.split()) == sorted(found), said
    for group, words in enumerate(found):
        said = from_outside(lab, how, job, f"--het-group={group}")
        assert said.stdout.split() == [words], said
    with lab.client() as client:
        client.remove_partition(f"slurm_{job}", force=True)
    poll("the service knows", lambda: str(job) not in lab.state()["pods"]["pod64"]["held"])
    said = from_outside(lab, how, job, "--het-group=0")
    assert (said.returncode != 0, said.stdout) == (True, ""), said


def without_shell(lab: NativeLab, *words: str) -> int:
    """A job that only `srun` from outside runs anything in."""
    name = f"no-shell-{len(lab.jobs())}"
    done = lab.run("salloc", "-J", name, "--no-shell", *words, user=ALICE)
    assert done.returncode == 0, done
    return min(job.id for job in lab.jobs().values() if job.fields["JobName"] == name)


def from_outside(
    lab: NativeLab, how: str, job: int, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a step shows that names its job so."""
    named = [f"{how}={job}"] if how == "--jobid" else []
    around = {} if named else {how: str(job)}
    argv = [*named, *words, "sh", "-c", SHOW]
    return lab.run("srun", *argv, user=ALICE, env={**(env or {}), **around})


def test_a_part_of_a_heterogeneous_srun_without_ipus_has_no_devices(lab: NativeLab) -> None:
    part = ["-n1", "-N1", "sh", "-c", SHOW]
    said = lab.run("srun", "--ipus=4", *part, ":", *part, user=ALICE)
    none, first = sorted(said.stdout.split())
    assert (none, first.startswith("[slurm_")) == ("[]", True), said


def test_a_job_that_a_job_submits_inherits_no_devices(lab: NativeLab) -> None:
    """Slurm hands the job's own options on to that, where they count more than #SBATCH lines, and
    its environment."""
    show = f"{SHOW}\necho $IPUOF_VIPU_API_GCD_ID.\nsrun -n1 sh -c '{SHOW}'\n"
    asks = lab.write("out/asks.sh", f"#!/bin/sh\n#SBATCH --ipus=2\n{show}")
    plain = lab.write("out/plain.sh", f"#!/bin/sh\n{show}")
    submit = f"sbatch --parsable -n1 {asks}\nsbatch --parsable -n1 {plain}\n"
    lab.write("out/submit.sh", f"{submit}salloc -Q -n1 sh -c '{SHOW} >shell; echo done'\n")
    # From within a step, whose environment has its task's GCD as well.
    job = lab.batch(f"srun -n1 sh {lab.folder}/out/submit.sh\nsleep 600\n", "--ipus=4", "-n1")
    poll("its jobs", lambda: "done" in lab.output(job).split())
    two, none = (int(word) for word in lab.output(job).split() if word.isdecimal())
    assert (lab.folder / "out" / "shell").read_text() == "[]\n"
    done = lab.wait_over(two, none)
    assert (done[two].state, done[none].state) == ("COMPLETED", "COMPLETED")
    assert "ipu:2" in done[two].fields["Licenses"].replace("=", ":")
    assert "ipu" not in done[none].fields["Licenses"]
    words = {two: [f"[slurm_{two}]", ".", f"[slurm_{two}]"], none: ["[]", ".", "[]"]}
    for one, said in words.items():
        poll("its words", partial(_said, lab, one, sorted(said)))


@pytest.mark.parametrize("has", [0, 4])
def test_a_step_that_asks_for_others_is_refused_and_its_job_goes_on(
    lab: NativeLab, has: int
) -> None:
    script = "srun --ipus=2 touch never\necho says $?\n"
    script += f"srun --ipus={has} sh -c '{SHOW}'\nsrun --ipus=0 sh -c '{SHOW}'\n"
    job = lab.batch(script, "-n1", *([f"--ipus={has}"] if has else []))
    done = lab.wait_over(job)[job]
    assert (done.state, done.fields["Restarts"]) == ("COMPLETED", "0")
    first, code, *shown = poll("its words", lambda: _lines(lab, job, 4))
    assert ("leave --ipus out" if has else "submit it with --ipus=2") in first
    assert (code, shown) == ("says 1", [f"[slurm_{job}]" if has else "[]", "[]"])
    assert not (lab.folder / "out" / "never").exists()


def _lines(lab: NativeLab, job: int, count: int) -> list[str]:
    """What it said, once it is so much, without srun's own words where a step has to wait."""
    waits = ("srun: Job ", "srun: Step created for ")
    found = [line for line in lab.output(job).splitlines() if not line.startswith(waits)]
    return found if len(found) >= count else []


@pytest.mark.parametrize("how", ["--jobid", "SLURM_JOB_ID"])
def test_a_step_from_outside_asks_where_the_licences_are_gone(lab: NativeLab, how: str) -> None:
    job = without_shell(lab, "--ipus=4")
    lab.ok("scontrol", "update", f"jobid={job}", "licenses=")
    said = from_outside(lab, how, job)
    assert said.stdout == f"[slurm_{job}]\n", said
    with lab.client() as client:
        client.remove_partition(f"slurm_{job}", force=True)
    poll("the service knows", lambda: str(job) not in lab.state()["pods"]["pod64"]["held"])
    said = from_outside(lab, how, job)
    assert (said.returncode != 0, said.stdout) == (True, ""), said
    # Where nobody can be asked, a job has none if that is all that Slurm says.
    plain = without_shell(lab)
    lab.end("service")
    said = from_outside(lab, how, plain)
    assert said.stdout == "[]\n", said


def nothing_begins(lab: NativeLab) -> None:
    """Nor does what srun asks for; and no node is the worse for it."""
    mark = lab.folder / "out" / "began-srun"
    assert lab.run("srun", "--ipus=4", "touch", str(mark), user=ALICE).returncode != 0
    assert not mark.exists()
    lab.wait_for_nodes()


def mended(lab: NativeLab) -> None:
    """The hook as it was set up."""
    hook(lab).unlink(missing_ok=True)
    hook(lab).symlink_to(lab.folder / "native" / "podwright-hook")


def test_without_hook_and_service_it_waits_in_the_queue(lab: NativeLab) -> None:
    broken(lab, "killed")
    lab.end("service")
    job = submitted(lab)
    poll("requeued", lambda: lab.job(job).fields["Restarts"] != "0", seconds=60)
    assert not began(lab, job)
    lab.wait_for_nodes()


def test_a_running_jobs_steps_are_refused_once_its_devices_are_gone(lab: NativeLab) -> None:
    mark = f"{lab.folder}/out/began-late"
    script = f"until test -e {lab.folder}/out/go; do sleep 0.1; done\nsrun touch {mark}\n"
    job = lab.batch(script, "--ipus=4", "-o", "/dev/null")
    lab.wait_state(job, "RUNNING")
    with lab.client() as client:
        client.remove_partition(f"slurm_{job}", force=True)
    poll("the service knows", lambda: str(job) not in str(lab.state()["pods"]["pod64"]["held"]))
    (lab.folder / "out" / "go").touch()
    assert "holds no devices" in held(lab, job)
    assert not Path(mark).exists()


def test_a_service_that_is_away_costs_a_running_job_nothing(lab: NativeLab) -> None:
    gate = lab.folder / "out" / "go-on"
    script = f"echo begun\nuntil test -e {gate}; do sleep 0.1; done\nsrun echo goes on\n"
    job = lab.batch(script, "--ipus=4")
    poll("its first step", lambda: "begun" in lab.output(job))
    lab.end("service")
    gate.touch()
    poll("its step", lambda: "goes on" in lab.output(job))
    lab.start_service()
    lab.wait_for_service()
    assert lab.wait_over(job)[job].state == "COMPLETED"


def test_licences_that_slurm_conf_lost_hold_the_job(lab: NativeLab) -> None:
    job = submitted(lab, "--hold")
    lab.ok("scontrol", "update", f"jobid={job}", "comment=saved")
    path = lab.folder / "slurm.conf"
    before = path.read_text()
    path.write_text("".join(f"{line}\n" for line in before.splitlines()
                            if not line.startswith("Licenses=")))  # fmt: skip
    try:
        restart_slurmctld(lab)
        lab.wait_for_nodes()
        lab.run("scontrol", "release", str(job))
        assert "--ipus" in held(lab, job) or lab.job(job).reason == "BadConstraints"
        assert not began(lab, job)
    finally:
        path.write_text(before)
        restart_slurmctld(lab)
        lab.wait_for_nodes()


def test_licences_that_an_administrator_changed_hold_the_job(lab: NativeLab) -> None:
    job = submitted(lab, "--hold")
    lab.ok("scontrol", "update", f"jobid={job}", "licenses=ipu:2;podwright_job:1;ipu_x1:2")
    lab.ok("scontrol", "release", str(job))
    said = held(lab, job)
    assert "it asked for 4 devices by --ipus, and Slurm counts" in said
    assert not began(lab, job)
    (right,) = [word for word in said.split() if word.startswith("licenses=")]
    lab.ok("scontrol", "update", f"jobid={job}", right.rstrip("."))
    lab.start_again(job)
    assert lab.wait_over(job)[job].state == "COMPLETED"
    assert began(lab, job)


def test_what_a_heterogeneous_job_counts_no_other_gets(lab: NativeLab) -> None:
    """slurmctld, killed, may have given its number to another while the service spoke of it."""
    job = submitted(lab, "--hold")
    before = lab.job(job).fields["Licenses"]
    for licences in ("ipu:12,podwright_job:2", "podwright_het_wait:1"):
        for name in (f"{job}", f"{job}+0"):
            lab.run("scontrol", "update", f"jobid={name}", f"licenses={licences}")
            assert lab.job(job).fields["Licenses"] == before
    lab.ok("scontrol", "release", str(job))
    assert lab.wait_over(job)[job].state == "COMPLETED"


def test_what_salloc_started_without_devices_is_ended(lab: NativeLab) -> None:
    broken(lab, "killed")
    shell = lab.popen("salloc", "-K", "--ipus=4", "sleep", "600", user=ALICE)
    _, said = shell.communicate(timeout=300)
    assert "revoked" in said
    lab.wait("all over", lambda jobs: all(job.over for job in jobs.values()))
