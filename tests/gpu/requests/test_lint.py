"""Every bad script gets its finding at its line and no other, and fixes hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podwright.gpu.lint import (
    CachedSite,
    Finding,
    difference,
    fix,
    fixed,
    lint,
    read_script,
    rules,
)
from podwright.gpu.lint._job_facts import job_facts
from podwright.slurm.site.releases import parse_version
from tests.gpu.requests.wordings import BETTER, MISTAKES

#: "conflicting ways", and what only a site can tell: test_lint_site.py
MORE = {"tasks-disagree", "memory-twice", "given-twice", "unknown-partition"}
HERE = Path(__file__).parent / "scripts"
GOOD = sorted((HERE / "good").glob("*.sh"))
BAD = sorted((HERE / "bad").glob("*.sh"))
_EXPECT = re.compile(r"# expect: (\S+)@(\d+)(?: slurm=(\S+))?(?: topology=(\S+))?")


def expectation(text: str) -> tuple[str, int, CachedSite]:
    match = _EXPECT.search(text)
    assert match, "every bad script says what is wrong with it"
    return (
        match[1],
        int(match[2]),
        CachedSite(parse_version(match[3]) if match[3] else None, match[4] or ""),
    )


def findings(text: str, site: CachedSite | None = None, *, better: bool = False) -> list[Finding]:
    return lint(read_script(text), site, better=better)


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_a_bad_script_gets_its_finding_and_no_other(path: Path) -> None:
    text = path.read_text()
    rule, line, site = expectation(text)
    all_levels = findings(text, site, better=True)
    assert [(f.rule, f.line) for f in all_levels] == [(rule, line)]
    level = all_levels[0].level
    told = [(f.rule, f.line) for f in findings(text, site)]
    assert told == ([(rule, line)] if level == "mistake" else [])


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_a_corrected_line_removes_its_finding(path: Path) -> None:
    text = path.read_text()
    rule, line, site = expectation(text)
    all_levels = findings(text, site, better=True)
    assert [(f.rule, f.line) for f in all_levels] == [(rule, line)]
    finding = all_levels[0]
    if not finding.corrected:
        assert not finding.sure
        return
    lines = text.splitlines()
    if finding.before:
        lines.insert(finding.line - 1, finding.corrected)
    else:
        lines[finding.line - 1] = finding.corrected
    after = "\n".join(lines) + "\n"
    assert rule not in [f.rule for f in findings(after, site, better=True)]
    if finding.sure:
        assert fixed(text, [finding]) == after


def test_no_correction_asks_for_more_gpus() -> None:
    """Who waits for GPUs is never told to wait for more of them."""
    wordings = (*MISTAKES.values(), *BETTER.values())
    texts = [text if text.startswith("#!") else f"#!/bin/bash\n{text}"
             for _, rows in wordings for _, text in rows]  # fmt: skip
    corrections = 0
    for text in [*(path.read_text() for path in BAD), *texts]:
        before = _gpus(text)
        for finding in findings(text, better=True):
            if finding.corrected and not finding.before:
                lines = text.splitlines()
                lines[finding.line - 1] = finding.corrected
                after = _gpus("\n".join(lines))
                corrections += 1
                assert before is None or after is None or after <= before, (finding, text)
    assert corrections > 40


def _gpus(text: str) -> int | None:
    """GPUs of the whole job; None where the script leaves their number open."""
    script = read_script(text)
    facts = job_facts(script)
    if facts.gpus is not None:
        return facts.gpus
    nodes = facts.nodes
    return facts.gpus_per_node * nodes if facts.gpus_per_node and nodes else None


def test_a_job_of_one_process_needs_no_second_gpu() -> None:
    """The script starts one python, whatever number of tasks it asks for."""
    head = "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --ntasks-per-node=4\n"
    plain = {one.rule for one in findings(head + "python a.py\n", better=True)}
    assert "gpu-shared-by-tasks" not in plain
    started = {one.rule for one in findings(head + "srun python a.py\n", better=True)}
    assert "gpu-shared-by-tasks" in started


def test_a_script_that_another_shell_writes_is_a_template() -> None:
    text = "#!/bin/bash\n#SBATCH --output=$LOGS/a.out\n\necho \\$SLURM_JOB_ID\n"
    assert findings(text.replace("\\", ""))[0].rule == "not-expanded"
    assert findings(text) == []
    in_task = text.replace("echo \\$SLURM_JOB_ID", 'srun bash -c "echo \\$SLURM_JOB_ID"')
    assert findings(in_task)[0].rule == "not-expanded", "that is for the shell of a task"


def test_the_corpora_are_large_enough_and_every_rule_is_in_them() -> None:
    assert len(GOOD) >= 20
    assert len(BAD) >= 30
    seen = {expectation(path.read_text())[0] for path in BAD}
    worded = {one for rule, _ in (*MISTAKES.values(), *BETTER.values()) for one in rule.split("|")}
    without = set(rules()) - seen - worded - MORE
    assert not without, (
        "these rules have neither a script in scripts/bad nor five wordings in wordings.py"
    )
    assert set(rules()) >= MORE
    assert not MORE & (seen | worded), "these have a script or wordings now: take them out of MORE"


def test_the_evidence_of_every_rule_is_there() -> None:
    """A test that shows it, or the page of those whose program it is."""
    top = Path(__file__).parents[3]
    for one in rules().values():
        path, _, name = one.evidence.partition("::")
        if one.evidence.startswith("https://"):
            continue
        assert f"def {name}(" in (top / path).read_text(), one.id


def test_what_is_not_sure_is_not_touched() -> None:
    text = (HERE / "bad" / "no_exclusive.sh").read_text()
    assert fixed(text, findings(text, better=True)) == text


def test_a_fix_keeps_every_other_byte() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:1:v100   \n\f\n\tpython a.py\v \u2028"
    after = fixed(text, findings(text))
    assert after == text.replace("gpu:1:v100", "gpu:v100:1")
    assert "+#SBATCH --gres=gpu:v100:1" in difference(text, after, "job.sh")


def test_seed_examples_of_the_question_how_to_give_each_task_its_gpu() -> None:
    """The three forms that circulate: one is right, two are not."""
    head = "#!/bin/bash\n#SBATCH --partition=gpu_partition\n"
    one = (
        head + "#SBATCH --gres=gpu:1\n#SBATCH --ntasks-per-node=1\n#SBATCH --nodes=1\npython p.py\n"
    )
    two = (
        head
        + "#SBATCH --gres=gpu:4\n#SBATCH --ntasks-per-node=2\n#SBATCH --nodes=2\nmpirun -np 4 p\n"
    )
    three = one.replace("gpu:1", "gpu:1:tesla:v100")
    assert findings(one) == []
    (total,) = findings(two, better=True)
    assert (total.rule, total.corrected) == ("gpus-counted-over-nodes", "#SBATCH --gres=gpu:2")
    assert [(f.rule, f.corrected) for f in findings(three)] == [
        ("gres-order", "#SBATCH --gres=gpu:v100:1")
    ]


def test_an_empty_file_and_a_binary_one_are_no_scripts() -> None:
    assert [f.rule for f in findings("")] == ["no-shebang"]
    assert [f.rule for f in findings("\x00\x01\ufffd" * 50)] == ["no-shebang"]
    unclosed = "#!/bin/sh\n#SBATCH '--job-name=unclosed\n"
    assert [f.rule for f in findings(unclosed)] == ["bad-value"]


def test_an_address_in_angle_brackets_is_no_value_to_be_filled_in() -> None:
    head = "#SBATCH --mail-user=<{}>\n#SBATCH --mem=64 GB\nsrun ./a\n"
    told = findings("\n#!/bin/bash\n" + head.format("maria.muster@institute.ch"))
    assert [(one.rule, one.line) for one in told] == [("no-shebang", 1), ("stray-word", 4)]
    assert findings("#!/bin/bash\n" + head.format("your.name@institute.ch")) == []


@pytest.mark.parametrize(
    ("line", "name", "refused"),
    [
        ("--account=<budget code>", "run.sh", True),
        ("--time=XX:00:00", "run.sh", True),
        ("--account=<budget>", "run.sh", False),  # a word like any other
        ("--time={{hours}}:00:00", "run.sh", False),
        ("--account=<budget code>", "templates/run.sh", False),
        ("--account=<budget code>", "run.sh.tmpl", False),
    ],
)
def test_what_a_person_has_to_fill_in_is_a_mistake_where_sbatch_refuses_it(
    line: str, name: str, refused: bool
) -> None:
    script = read_script(f"#!/bin/sh\n#SBATCH {line}\n#SBATCH --mem=1 GB\nsrun ./a\n", name)
    told = [(one.rule, one.line) for one in lint(script)]
    assert told == ([("template", 2)] if refused else [])


@pytest.mark.parametrize(
    ("told", "mistake"), [("--num_gpus=16", False), ("--workers 16", False), ("--seed=16", True)]
)
def test_a_program_that_is_told_of_all_tasks_may_start_them(told: str, *, mistake: bool) -> None:
    head = "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --ntasks=16\n#SBATCH --gres=gpu:8\n"
    rules_told = [one.rule for one in findings(f"{head}python run_one.py {told}\n")]
    assert rules_told == (["one-process-of-many"] if mistake else [])


def test_few_lines_above_the_shebang_of_a_job_script_make_no_notes_of_it() -> None:
    def told(text: str, name: str) -> list[tuple[str, int]]:
        return [(one.rule, one.line) for one in lint(read_script(text, name))]

    script = "#!/bin/bash\n#SBATCH --mem=64G\nsrun ./a\n"
    text = "conda activate human\n## has seqtk, too\n\n" + script
    assert told(text, "pipeline/map.sh")[0] == ("no-shebang", 1)
    assert told(text, "notes") == []
    assert told("This is how we run it.\n" + "Then this:\n" * 3 + script, "map.sh") == []
    assert told("Run it so:\n" + script + "\nor so:\n" + script, "map.sh") == []


@pytest.mark.parametrize("line", ["{{ header }}", "#SBATCH -p <name>", "#SBATCH -A %(account)s"])
def test_values_of_a_template_are_no_mistakes(line: str) -> None:
    wrong = "#SBATCH --time=TBD\n#SBATCH --nodes = 2\n\nsrun ./a\n#SBATCH --mem=4G\n"
    assert {f.rule for f in lint(read_script(f"#!/bin/bash\n{wrong}"))} >= {"late-directive"}
    script = read_script(f"#!/bin/bash\n{line}\n{wrong}")
    told = {f.rule for f in lint(script)}
    assert not told & {"bad-value", "stray-word", "late-directive"}
    assert [f.line for f in lint(script, better=True) if f.rule == "template"] == [2]


@pytest.mark.parametrize(
    "line",
    [
        "{% if gpus %}",
        "{{ command }}",
        "#SBATCH --account=$ACCOUNT --partition=$QUEUE --output=$LOG",
        "#SBATCH --mem=${MEM}\n#SBATCH --account=${ACCOUNT}\n#SBATCH --output=${LOGDIR}/x",
    ],
)
def test_what_another_program_fills_in_is_no_mistake(line: str) -> None:
    body = "#SBATCH --time=1h30\nsrun ./a\n#SBATCH --mem=4G\n"
    text = f"#!/bin/bash\n{body}{line}\n" if line[0] == "{" else f"#!/bin/bash\n{line}\n{body}"
    assert lint(read_script(text)) == []
    assert {f.rule for f in lint(read_script(text), better=True)} >= {"template", "bad-value"}


@pytest.mark.parametrize(
    "name",
    [
        "job.sh.j2",
        "a/submit.tpl",
        "sbatch_template.sh",
        "run.sh.in",
        "a/slurm_templates/b/train.sh",
    ],
)
def test_a_file_named_as_a_template_is_one(name: str) -> None:
    text = "#!/bin/bash\n#SBATCH --time=1h30\nsrun ./a\n#SBATCH --mem=4G\n"
    assert {f.rule for f in lint(read_script(text))} == {"bad-value", "late-directive"}
    assert lint(read_script(text, name)) == []
    assert fix(text, script_name=name) == text


@pytest.mark.parametrize("line", ["--time=walltime", "--nodes=n", "--mem=lots"])
def test_a_word_where_a_number_is_to_come_may_be_filled_in(line: str) -> None:
    script = read_script(f"#!/bin/bash\n#SBATCH {line}\nsrun ./a\n")
    assert lint(script) == []
    assert [f.rule for f in lint(script, better=True)] == ["bad-value"]


@pytest.mark.parametrize("line", ["##SBATCH --mem=4G", "    ##SBATCH --mem=4G"])
def test_a_line_that_was_taken_out_is_no_mistake(line: str) -> None:
    assert lint(read_script(f"#!/bin/bash\n#SBATCH --nodes=1\n{line}\n\nsrun ./a\n")) == []


@pytest.mark.parametrize("first", ["!/bin/bash", "/bin/bash -l", "! /usr/bin/env bash"])
def test_a_shebang_without_its_sign_is_one_mistake(first: str) -> None:
    text = f"{first}\n#SBATCH --nodes=1\n#SBATCH --mem=4G\nsrun ./a\n"
    assert [(f.rule, f.line) for f in findings(text)] == [("no-shebang", 1)]
    after = fix(text)
    assert after.startswith("#!/")
    assert after.count("\n") == text.count("\n")
    assert findings(after) == []


@pytest.mark.parametrize("below", ["srun ./a", "python a.py; cp b c", "mpirun -n 2 ./a\ndate"])
def test_lines_below_the_work_may_be_notes(below: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=1\ncd a\n{below}\n#SBATCH --mem=4G\ndate\n"
    assert findings(text) == []
    assert [f.rule for f in findings(text, better=True)] == ["late-directive"]
    late = text.replace("cd a\n", "cd a\n#SBATCH --time=5\n")
    assert [(f.rule, f.line) for f in findings(late)] == [("late-directive", 4)]


def test_a_list_of_options_to_choose_from_is_no_script() -> None:
    above = "#!/bin/bash\n#SBATCH --cluster=a\nOR\n#SBATCH --cluster=b\n"
    assert [f.line for f in findings(above + "date\n")] == [4]
    assert findings(above + "#SBATCH --qos=[qos]\ndate\n") == []
    assert findings(": 'An array of jobs.\n#SBATCH -n1\n'\nsrun ./a\n#SBATCH --mem=4G\n") == []


def test_a_record_with_a_script_in_it_is_no_script() -> None:
    job = "#!/bin/bash\n#SBATCH --nodes=1\nsrun ./a\n"
    assert findings(f"#####\ncluster=a\nnodes=1\n{job}") == []
    assert findings(f"#####\ncluster=a\n{job[12:]}") == []
    assert [f.line for f in findings(f"# my job\n{job}")] == [1]  # the shebang slipped down


def test_a_script_that_writes_and_submits_others_may_name_options_in_comments() -> None:
    note = "#!/bin/bash\nset -e\n#SBATCH --mem=4G\ndate\n"
    assert [f.line for f in findings(note)] == [3]
    assert findings(f"{note}cat > job <<EOF\n#!/bin/sh\n#SBATCH -n1\nEOF\nsbatch job\n") == []
    assert findings(f"{note}sbatch --mem=4G job.sh\n") == []


@pytest.mark.parametrize("line", ["#   sbatch --array=1-4 job.sh", "#sbatch --array=1-4 \\"])
def test_a_comment_may_show_how_to_submit(line: str) -> None:
    assert findings(f"#!/bin/bash\n#SBATCH -n1\n{line}\nsrun ./a\n") == []


def test_infiniband_stays_off_where_the_fabric_is_another() -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=2 --gres=gpu:8 --exclusive --ntasks-per-node=8\n"
    script = f"{head}export NCCL_IB_DISABLE=1\nsrun python train.py\n"
    (found,) = lint(read_script(script), better=True, only_rules=["nccl-over-tcp"])
    assert found.corrected == "export NCCL_IB_DISABLE=0"
    for fabric in ("FI_PROVIDER=efa", "LD_LIBRARY_PATH=/opt/aws-ofi-nccl/lib"):
        other = script.replace("export NCCL", f"export {fabric}\nexport NCCL")
        assert lint(read_script(other), better=True, only_rules=["nccl-over-tcp"]) == []
        assert fix(other, better=True) == other


def test_options_of_the_program_are_not_those_of_the_launcher() -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=4 --gres=gpu:4\nmodule load openmpi\n"
    for run in ("mpirun ./a -n 64", "srun ./a -n 64", "mpirun --mca btl tcp ./a -np 64"):
        script = f"{head}{run}\n"
        assert lint(read_script(script)) == []
        assert fix(script, better=True) == script
    (found,) = lint(read_script(f"{head}mpirun -n 64 ./a\n"))
    assert found.rule == "more-ranks-than-tasks"


def test_a_flag_of_srun_alone_is_known_there() -> None:
    flag = "--gres-flags=allow-task-sharing"
    head = "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=4 --gpus=4\n"
    assert lint(read_script(f"{head}srun {flag} ./a\n")) == []


def test_notes_with_a_script_in_them_are_no_script() -> None:
    notes = "Log in first.\n\n#!/bin/bash\n#SBATCH --time=1\n\nsrun ./a\n#SBATCH --mem=4G\n"
    assert lint(read_script(notes)) == []
