"""What lint calls a mistake, real Slurm does to the script that makes it."""

from __future__ import annotations

import socket

import pytest

from podwright.gpu.lint import fix, lint, read_script
from tests.gpu.requests.test_lint import BAD, GOOD, expectation
from tests.gpu.requests.wordings import MISTAKES, script
from tests.gpu.requests.wordings import REFUSED as WORDINGS
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

# What keeps a job waiting, in Slurm's words: Slurm itself finds no nodes, or none yet.
STAY = ("Resources", "Priority", "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved")

# Words with which sbatch refuses a script that it cannot read, whatever nodes there are.
UNREADABLE = (
    "Invalid",
    "invalid",
    "unrecognized option",
    "ambiguous",
    "less than minimum node count",
    "is not a valid node count",
    "DOS line breaks",
    "does not look like a batch script",
    "fatal",
)
REFUSALS = ("empty", "only whitespace", "NULL character", "ambiguous", "dependency problem")
REFUSED = {
    "blanks-around-equals", "bad-value", "dos-line-breaks", "gres-order", "no-shebang", "refused",
    "stray-word", "typographic-dash", "unknown-option",
}  # fmt: skip


RELEASES = pytest.mark.parametrize("name", ["oldest", "newest"])


@RELEASES
def test_slurm_refuses_what_lint_says_it_refuses(name: str) -> None:
    with gpu_lab(release(name)) as lab:

        def said(text: str) -> str:
            return lab.run("sbatch", "--test-only", stdin=text).stderr

        wrong = {}
        for path in GOOD:
            words = said(path.read_text())
            assert not any(word in words for word in UNREADABLE), (path.stem, words)
        for path in BAD:
            rule, _, site = expectation(path.read_text())
            if rule == "template":  # it is to be filled in before anybody submits it
                continue
            if rule == "option-this-slurm-lacks" and name == "newest":
                continue  # it speaks of older ones
            refused = rule in REFUSED
            if rule == "option-this-slurm-lacks" and site.version == (22, 5):
                refused = True
            if rule == "more-nodes-named":
                refused = name == "oldest"  # later releases leave out nodes without a word
            if rule == "gpus-disagree":  # sbatch sees what it has, and no step
                refused = name == "newest" and "#SBATCH --gres" in path.read_text()
            words = said(path.read_text())
            if any(word in words for word in UNREADABLE) != refused:
                wrong[path.stem] = words
        for kind, (rule, texts) in MISTAKES.items():
            for number, (_, text) in enumerate(texts if rule in REFUSED else [], 1):
                words = said(script(text))
                if not any(word in words for word in (*UNREADABLE, "array specification")):
                    wrong[f"{kind}-{number}"] = words
        for rule, _, text in WORDINGS:
            words = said(text)
            if not any(word in words for word in (*UNREADABLE, *REFUSALS)):
                wrong[f"{rule}: {text}"] = words
        assert wrong == {}


@RELEASES
def test_every_fixed_script_is_taken(name: str) -> None:
    """Whatever --fix changed: nothing of it is told again, and sbatch takes what it refused."""
    texts = [path.read_text() for path in BAD]
    texts += [script(text) for _, rows in MISTAKES.values() for _, text in rows]
    changed = 0
    with gpu_lab(release(name)) as lab:
        for text in texts:
            after = fix(text)
            if after == text:
                continue
            changed += 1
            assert not [one for one in lint(read_script(after)) if one.sure]
            before = {one.rule for one in lint(read_script(text)) if not one.sure}
            left = {one.rule for one in lint(read_script(after))}
            assert left <= before, (text, left)
            done = lab.run("sbatch", "--test-only", stdin=after)
            if not left:  # the lab's nodes are small: they may lack what is asked for
                assert done.returncode == 0 or "not available" in done.stderr, (after, done.stderr)
    assert changed >= 15


@RELEASES
def test_what_the_silent_mistakes_do(name: str) -> None:
    """Mistakes that Slurm takes without a word: each shows in what the tasks see."""
    with gpu_lab(release(name)) as lab:

        def output(*lines: str) -> list[str]:
            job = lab.submit("\n".join(("#!/bin/bash", *lines)) + "\n")
            lab.wait_over(job)
            return (lab.folder / "out" / f"slurm-{job}.out").read_text().split("\n")[:-1]

        see = "srun sh -c 'echo ${CUDA_VISIBLE_DEVICES-none}'"
        # gpu-shared-by-tasks: four tasks, one GPU
        shared = output("#SBATCH --ntasks-per-node=4", "#SBATCH --gres=gpu:1", see)
        assert shared == ["0"] * 4
        # gpus-counted-over-nodes: each of two tasks on each of two nodes sees four GPUs
        twice = ("#SBATCH --gres=gpu:4", "#SBATCH --ntasks-per-node=2", "#SBATCH --nodes=2")
        assert output(*twice, see) == ["0,1,2,3"] * 4
        # late-directive: no GPU at all
        assert output("true", "#SBATCH --gres=gpu:4", see) == ["none"]
        # launcher-on-one-node: a plain command runs once
        assert len(output("#SBATCH --nodes=2", "#SBATCH --gres=gpu:1", "hostname")) == 1
        # master-addr: a node list cut by hand is no host
        cut = output("#SBATCH --nodes=2", "#SBATCH --gres=gpu:1", "echo ${SLURM_JOB_NODELIST%%,*}")
        assert cut == ["n[1-2]"]
        # cpus-not-passed-on: srun says whether it knows of cores for each task (before 23.11 not)
        wide = ("#SBATCH --cpus-per-task=4", "#SBATCH --ntasks=2", "#SBATCH --gres=gpu:1")
        knows = "-v true 2>&1 | grep -c 'because -c/--cpus-per-task given'"
        assert output(*wide, f"srun {knows}") == ["0" if name == "oldest" else "1"]
        assert output(*wide, f'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" {knows}') == ["1"]
        # bad-value: --mail-user takes the next line for its value
        took = ("#SBATCH --mail-user", "#SBATCH --gpus=1", "#SBATCH --mail-type=NONE", see)
        assert output(*took) == ["none"]
        # no-directive: the shell looks for a program of that name
        lost = output("#SBATCH -n1 \\", "  --gpus=1", see)
        assert "--gpus=1: command not found" in lost[0]
        assert lost[1:] == ["none"]
        # hidden-peers: each task sees only its own
        own = output("#SBATCH --ntasks=4", "#SBATCH --gpus-per-task=1", see)
        assert sorted(own) == ["0", "1", "2", "3"]


def test_what_more_silent_mistakes_do() -> None:
    """The rest of what Slurm takes without a word, where a machine without GPUs can show it."""
    lab = gpu_lab(TopologyPlugin="topology/tree")
    tree = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=top Switches=a,b\n"
    lab.write("topology.conf", tree)
    with lab:

        def submit(*lines: str) -> int:
            return lab.submit("\n".join(("#!/bin/bash", *lines)) + "\n")

        def output(*lines: str) -> list[str]:
            job = submit(*lines)
            lab.wait_over(job)
            return (lab.folder / "out" / f"slurm-{job}.out").read_text().split("\n")[:-1]

        # fewer-tasks-than-nodes: the node without a task is given back
        few = ("#SBATCH --nodes=2", "#SBATCH --ntasks=1", "#SBATCH --gpus-per-node=1")
        assert output(*few, "echo $SLURM_JOB_NUM_NODES")[-1] == "1"
        # gpus-total-too-small: four in all are no four on each node
        total = ("#SBATCH --gpus=4", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1")
        assert sum(map(int, output(*total, "srun sh -c 'echo $SLURM_GPUS_ON_NODE'"))) == 4
        # more-processes-than-gpus: a fourth process finds no fourth GPU
        two = ("#SBATCH --gpus-per-node=2",)
        assert output(*two, "echo $CUDA_VISIBLE_DEVICES") == ["0,1"]
        # launcher-in-every-task: srun starts it once for each task
        each = ("#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=4")
        assert output(*each, "srun echo torchrun") == ["torchrun"] * 4
        # overrides-grant: GPU 0 is another job's
        held = submit("#SBATCH -wn1", "#SBATCH --gpus=1", "sleep 600")
        lab.wait_state(held, "RUNNING")
        mine = output("#SBATCH -wn1", "#SBATCH --gpus=1", "echo $CUDA_VISIBLE_DEVICES")
        assert mine != ["0"]
        # missing-exclusive: that job ran beside the other; an exclusive one waits
        alone = submit("#SBATCH -wn1", "#SBATCH --gpus=1", "#SBATCH --exclusive", "true")
        lab.wait("its reason", lambda jobs: jobs[alone].fields["Reason"] == "Resources")
        # fixed-master-port: the second of two jobs on a node finds it taken
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        listen = f'python3 -c \'import socket, time; s = socket.create_server(("", {port}));'
        first = submit(
            "#SBATCH -wn2", "#SBATCH --gpus=1", f"{listen} print(1, flush=True); time.sleep(600)'"
        )
        said = lab.folder / "out" / f"slurm-{first}.out"
        poll("the first to listen", lambda: said.exists() and "1" in said.read_text())
        second = output("#SBATCH -wn2", "#SBATCH --gpus=1", f"{listen} print(1)'")
        assert "Address already in use" in second[-1]
        lab.ok("scancel", str(first), str(alone))
        lab.wait_over(first, alone)
        # missing-topology: with n1 and n3 taken, two nodes hang on two switches
        other = submit("#SBATCH -wn3", "#SBATCH --exclusive", "sleep 600")
        whole = submit("#SBATCH -wn1", "#SBATCH --gpus=3", "sleep 600")
        lab.wait_state(other, "RUNNING")
        lab.wait_state(whole, "RUNNING")
        pair = ("#SBATCH --nodes=2", "#SBATCH --gpus-per-node=4")
        apart = submit(*pair, "sleep 600")
        assert lab.wait_state(apart, "RUNNING").fields["NodeList"] == "n[2,4]"
        lab.ok("scancel", str(apart))
        lab.wait_over(apart)
        waits = submit(*pair, "#SBATCH --switches=1", "true")
        lab.wait("its reason", lambda jobs: jobs[waits].fields["Reason"] in STAY)
        assert lab.job(waits).state == "PENDING"
