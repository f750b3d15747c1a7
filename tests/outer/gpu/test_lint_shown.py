"""The evidence of lint's rules: what real Slurm does with what they call mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from podwright.gpu.lint import CachedSite, lint, read_script, read_site
from podwright.slurm.site.releases import parse_version
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import SlurmLab, poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


# An option, two values, and the field of `scontrol show job` that has the one which counts.
TWICE = (
    ("gres", "gpu:3", "gpu:2", "TresPerNode"),
    ("exclude", "n1", "n2", "ExcNodeList"),
    ("time", "01:00:00", "02:00:00", "TimeLimit"),
    ("comment", "one", "two", "Comment"),
    ("job-name", "one", "two", "JobName"),
    ("output", "one", "two", "StdOut"),
    ("nodelist", "n1", "n2", "ReqNodeList"),
)


@pytest.fixture(scope="module", params=["oldest", "newest"])
def lab(request: pytest.FixtureRequest) -> Iterator[SlurmLab]:
    with gpu_lab(release(request.param)) as lab:
        yield lab


def text_of(*lines: str) -> str:
    return "\n".join(("#!/bin/bash", *lines)) + "\n"


def output(lab: SlurmLab, *lines: str) -> list[str]:
    job = lab.submit(text_of(*lines))
    lab.wait_over(job)
    return (lab.folder / "out" / f"slurm-{job}.out").read_text().split("\n")[:-1]


def called(*lines: str) -> list[str]:
    return [one.rule for one in lint(read_script(text_of(*lines)))]


def refused(lab: SlurmLab, *lines: str) -> str:
    done = lab.run("sbatch", "--test-only", stdin=text_of(*lines))
    assert done.returncode != 0
    return done.stderr


def test_lookalikes_are_comments(lab: SlurmLab) -> None:
    for line in ("# SBATCH", "## SBATCH", "  #SBATCH", "#SBACTH", "#sbatch"):
        job = (f"{line} --ntasks=3", "echo ${SLURM_NTASKS-none}")
        assert output(lab, *job) == ["none"]
        assert called(*job) == ["no-directive"]
    assert output(lab, "#SBATCH --ntasks=3", "echo ${SLURM_NTASKS-none}") == ["3"]


def test_variables_in_directives_stay_as_they_are(lab: SlurmLab) -> None:
    lines = ("#SBATCH --job-name=$HOME", "#SBATCH --output=~/%j.out", "true")
    job = lab.submit(text_of(*lines))
    fields = lab.wait_over(job)[job].fields
    assert fields["JobName"] == "$HOME"
    assert fields["StdOut"].endswith(f"/~/{job}.out")
    assert called(*lines) == ["not-expanded", "not-expanded"]


def test_the_last_of_two_equal_options_counts(lab: SlurmLab) -> None:
    lines = ("#SBATCH --ntasks=2", "#SBATCH -n 3", "echo $SLURM_NTASKS")
    assert output(lab, *lines) == ["3"]
    assert called(*lines) == ["given-twice"]
    mails = ("#SBATCH --mail-type=END", "#SBATCH --mail-type=FAIL", "true")
    job = lab.submit(text_of(*mails))
    old = lab.release.name == "oldest"  # before 25.05 both count
    assert lab.wait_over(job)[job].fields["MailType"] == ("END,FAIL" if old else "FAIL")
    assert called(*mails) == []
    for option, first, last, field in TWICE:
        pair = (f"#SBATCH --{option}={first}", f"#SBATCH --{option}={last}", "true")
        job = lab.submit(text_of(*pair), "--hold")
        told = lab.job(job).fields.get(field, "")
        lab.ok("scancel", str(job))
        assert last in told, (option, told)
        assert first not in told, (option, told)
        assert called(*pair) == ["given-twice"]


def test_conflicting_ways_of_asking(lab: SlurmLab) -> None:
    memory = ("#SBATCH --mem=1G", "#SBATCH --mem-per-cpu=1G", "true")
    assert "mutually exclusive" in refused(lab, *memory)
    assert called(*memory) == ["memory-twice"]
    tasks = ("#SBATCH --nodes=2", "#SBATCH --ntasks=8", "#SBATCH --ntasks-per-node=2", "true")
    assert "not available" in refused(lab, *tasks)
    assert called(*tasks) == ["tasks-disagree"]
    lone = ("#SBATCH --nodes=1", "#SBATCH --ntasks=1", "#SBATCH --ntasks-per-node=2")
    if lab.release.name == "oldest":
        assert output(lab, *lone, "srun sh -c 'echo $SLURM_NTASKS'") == ["1"]
    else:
        assert "not available" in refused(lab, *lone, "true")
    newest = CachedSite(version=parse_version("26.05"))
    found = lint(read_script(text_of(*lone, "srun ./a")), newest)
    assert [one.rule for one in found] == ["tasks-disagree"]
    both = ("#SBATCH --gpus-per-node=4", "#SBATCH --gres=gpu:2", "echo $SLURM_GPUS_ON_NODE")
    if lab.release.name == "oldest":
        (told,) = output(lab, *both)
        assert told in ("2", "4")  # one of the two is not heard
    else:
        assert "mutually exclusive" in refused(lab, *both)
        same = ("#SBATCH --gpus-per-node=2", "#SBATCH --gres=gpu:2", "true")
        assert "mutually exclusive" in refused(lab, *same)
        step = ("#SBATCH --gpus-per-node=2", "srun --gres=gpu:1 true 2>&1")
        assert "mutually exclusive" in output(lab, *step)[0]  # what the job passes on counts
        for lines in (same, step):
            found = lint(read_script(text_of(*lines)), newest)
            assert [one.rule for one in found] == ["gpus-disagree"]
    assert called(*both) == ["gpus-disagree"]
    typed = ("#SBATCH --gpus-per-node=1", "#SBATCH --gres=gpu:a100:1", "true")
    assert re.search("mutually exclusive|with and without type", refused(lab, *typed))
    assert called(*typed) == ["gpus-disagree"]


def test_more_nodes_named_than_allowed(lab: SlurmLab) -> None:
    lines = ("#SBATCH --nodes=1", "#SBATCH --nodelist=n[1-2]", "echo $SLURM_JOB_NUM_NODES")
    assert called(*lines) == ["more-nodes-named"]
    if lab.release.name == "oldest":
        assert "invalid number of nodes" in refused(lab, *lines)
    else:
        assert output(lab, *lines) == ["1"], "one of the two nodes is left out without a word"
    for fits in ("#SBATCH --nodes=2", "#SBATCH --nodes=1-2", "#SBATCH --ntasks=1"):
        assert called(fits, "#SBATCH --nodelist=n[1-2]", "srun ./a") == []


def test_variables_of_gpus_as_the_job_sees_them(lab: SlurmLab) -> None:
    echo = "echo [$SLURM_GPUS_PER_NODE] [$SLURM_GPUS] [$SLURM_GPUS_ON_NODE]"
    assert output(lab, "#SBATCH --gres=gpu:2", echo) == ["[] [] [2]"]
    assert output(lab, "#SBATCH --gpus-per-node=a100:2", echo) == ["[a100:2] [] [2]"]
    assert output(lab, "#SBATCH -N1", "#SBATCH --gpus=2", echo) == ["[] [2] [2]"]
    several = ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=2", "echo [$SLURM_TASKS_PER_NODE]")
    assert output(lab, *several) == ["[2(x2)]"]
    plain = ("#SBATCH --nodes=1", "echo [$SLURM_NTASKS_PER_NODE]")
    assert output(lab, *plain) == ["[]"]


def test_a_job_that_asks_for_no_gpus_has_none(lab: SlurmLab) -> None:
    echo = "echo ${CUDA_VISIBLE_DEVICES-none} ${SLURM_GPUS_ON_NODE-none}"
    assert output(lab, "#SBATCH -N1", echo) == ["none none"]
    site = read_site(lab.ok("scontrol", "show", "config"), "", "")
    assert site.gpus is True
    script = read_script(text_of("#SBATCH -N1", "torchrun --nproc_per_node=2 a.py"))
    assert [one.rule for one in lint(script, site)] == ["no-gpus-asked"]


def test_numbers_of_gpus_beyond_the_grant(lab: SlurmLab) -> None:
    count = "echo $SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES"
    assert output(lab, "#SBATCH -N1", "#SBATCH --gpus=1", count) == ["1 0"]
    # an exclusive job has them all
    assert output(lab, "#SBATCH --exclusive", "#SBATCH --gpus=1", count) == ["4 0,1,2,3"]
    held = ("#SBATCH -N1", "#SBATCH --gpus=1", "export CUDA_VISIBLE_DEVICES=1", "python a.py")
    assert called(*held) == ["gpu-out-of-grant"]


def test_the_batch_shell_expands_before_srun(lab: SlurmLab) -> None:
    two = ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=2")
    assert output(lab, *two, "srun echo $SLURM_NODEID $SLURM_PROCID") == ["0 0"] * 4
    own = output(lab, *two, "srun bash -c 'echo $SLURM_NODEID $SLURM_PROCID'")
    assert sorted(own) == ["0 0", "0 1", "1 2", "1 3"]
    # world-size: as many tasks start as Slurm says, whatever the variable says
    sized = output(lab, *two, "export WORLD_SIZE=2", "srun sh -c 'echo $WORLD_SIZE $SLURM_NTASKS'")
    assert sized == ["2 4"] * 4


def test_the_number_of_a_task_on_its_node_begins_with_0_on_each(lab: SlurmLab) -> None:
    two = ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=1")
    assert output(lab, *two, "srun bash -c 'echo $SLURM_LOCALID'") == ["0", "0"]
    launch = "srun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_LOCALID --master_addr=$A a.py'"
    assert called(*two, launch) == ["same-rank"]


def test_a_variable_that_nobody_sets_is_no_program(lab: SlurmLab) -> None:
    step = ("#SBATCH --nodes=1", "srun sh -c 'echo $#' sh $NOBODY_SETS_IT")
    assert output(lab, *step) == ["0"]
    text = text_of("#SBATCH --nodes=1", "srun python3 $NOBODY_SETS_IT a")
    assert [one.rule for one in lint(read_script(text), better=True)] == ["unset-program"]


def test_the_end_of_the_script_ends_what_is_behind_it(lab: SlurmLab) -> None:
    lines = ("#SBATCH -n 1", "srun sleep 6000 &", "sleep 6000 &")
    job = lab.submit(text_of(*lines))
    assert lab.wait_over(job)[job].state in ("COMPLETED", "CANCELLED", "FAILED")
    assert called(*lines) == ["no-wait"]


@pytest.mark.timeout(120)
def test_steps_without_exact_run_one_after_the_other(lab: SlurmLab) -> None:
    cores = ("#SBATCH -N1", "#SBATCH --ntasks=2")
    gpus = (*cores, "#SBATCH --gres=gpu:2")
    on = f"{lab.folder}/out/on"
    for job, step, together in (
        (cores, "srun -n1", False),
        (cores, "srun -n1 --exact", True),
        (gpus, "srun -n1 --gres=gpu:1", False),
        (gpus, "srun -n1 --exact", False),  # the first has all GPUs
        (gpus, "srun -n1 --exact --gres=gpu:1", True),
    ):
        first = f"{step} sh -c 'touch {on}; exec sleep 6000' &"
        until = f"until [ -e {on} ]; do sleep 0.1; done"
        second = f"{step} --immediate=1 true 2>/dev/null; echo $?"
        told = output(lab, *job, f"rm -f {on}", first, until, second)
        assert (told[0] == "0") == together, (job, step, told)
        loop = ("for i in 1 2; do", f"  {step} ./a &", "done", "wait")
        assert called(*job, *loop) == ([] if together else ["steps-not-exact"])


def test_a_step_starts_the_tasks_of_its_job_whatever_it_says_of_each_node(lab: SlurmLab) -> None:
    two = ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=4")
    for step, tasks in (("--ntasks-per-node=1", 8), ("", 8), ("--nodes=2", 8), ("--ntasks=2", 2)):
        told = output(lab, *two, f"srun {step} sh -c 'echo $SLURM_NTASKS' 2>/dev/null")
        assert told == [str(tasks)] * tasks, step
        launch = f"srun {step} torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d a.py"
        assert called(*two, launch) == (["launcher-in-every-task"] if tasks == 8 else []), step
    plain = ("#SBATCH --nodes=2", "srun --ntasks-per-node=1 sh -c 'echo $SLURM_NTASKS'")
    assert output(lab, *plain) == ["2", "2"]


def test_a_step_cannot_have_more_than_its_job(lab: SlurmLab) -> None:
    two = ("#SBATCH --nodes=2", "#SBATCH --gpus-per-node=2")
    for more in ("srun --nodes=4 true", "srun --gres=gpu:4 true"):
        assert output(lab, *two, f"{more} 2>/dev/null; echo $?")[-1] == "1"
        assert called(*two, more) == ["step-beyond-job"]


def test_a_time_over_the_limit_of_the_partition(lab: SlurmLab) -> None:
    lab.ok("scontrol", "update", "PartitionName=main", "MaxTime=60", "MaxNodes=2")
    try:
        rows = lab.ok("scontrol", "--oneliner", "show", "partition")
        site = read_site(lab.ok("scontrol", "show", "config"), rows, lab.ok("sbatch", "--help"))
        for line, reason in (
            ("--time=61", "PartitionTimeLimit"),
            ("--nodes=3", "PartitionNodeLimit"),
        ):
            text = text_of(f"#SBATCH {line}", "true")
            job = lab.submit(text)
            poll("a reason", lambda: lab.job(job).reason == reason)  # noqa: B023
            assert [one.rule for one in lint(read_script(text), site)] == ["over-the-limit"]
            lab.ok("scancel", str(job))
            lab.wait_over(job)
        fits = text_of("#SBATCH --time=60", "#SBATCH --nodes=2", "true")
        assert lint(read_script(fits), site) == []
        other = ("#SBATCH -p nowhere", "true")
        assert "invalid partition" in refused(lab, *other)
        told = lint(read_script(text_of(*other)), site)
        assert [one.rule for one in told] == ["unknown-partition"]
    finally:
        lab.ok(
            "scontrol", "update", "PartitionName=main", "MaxTime=UNLIMITED", "MaxNodes=UNLIMITED"
        )


def test_the_options_of_this_sbatch_are_read_from_its_help(lab: SlurmLab) -> None:
    site = read_site("", "", lab.ok("sbatch", "--help"))
    assert {"array", "gres", "job-name", "time", "gpus-per-node", "nodelist"} <= site.options
    text = text_of("#SBATCH --container-image=a", "true")
    assert [one.rule for one in lint(read_script(text), site)] == ["unknown-option"]
    assert lint(read_script(text)) == []
    assert "unrecognized option" in refused(lab, "#SBATCH --container-image=a", "true")
