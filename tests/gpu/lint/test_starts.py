"""What starts: the processes of one training know each other, and each GPU has one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.gpu.lint import CachedSite, Rule, lint, read_script
from podwright.gpu.lint._script_files import read_beside
from podwright.slurm.site.releases import parse_version
from tests.gpu.lint.helpers import HELPERS

TWO = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    "#SBATCH --cpus-per-task=8\n#SBATCH --exclusive\n"
)
MEET = "--rdzv_backend=c10d --rdzv_endpoint=$head_ip:29500"

#: Mistakes that a helper used to hide.
MISTAKES = {
    "launcher-on-one-node": f"torchrun --nnodes=2 --nproc_per_node=8 {MEET} train.py",
    "fewer-processes-than-gpus": f"srun torchrun --nnodes=2 --nproc_per_node=4 {MEET} train.py",
    "more-processes-than-gpus": f"srun torchrun --nnodes=2 --nproc_per_node=9 {MEET} train.py",
    "one-process-of-many": "python train.py",
    "separate-trainings": "srun torchrun --nproc_per_node=8 train.py",
    "launcher-in-every-task": f"srun -n 16 torchrun --nnodes=2 --nproc_per_node=8 {MEET} train.py",
}


def told(text: str, *, better: bool = False) -> list[tuple[str, str]]:
    return [
        (one.rule, one.level)
        for one in lint(read_script(text), better=better)
        if one.rule not in ("fixed-master-port", "missing-exclusive")
    ]


def mistakes(text: str) -> list[str]:
    return [rule for rule, _ in told(text)]


@pytest.mark.parametrize("helper", HELPERS)
def test_a_helper_hides_no_mistake(helper: str) -> None:
    for rule, command in MISTAKES.items():
        assert mistakes(f"{TWO}{helper}\n{command}\n") == [rule], command


def test_there_are_as_many_helpers_as_were_tried() -> None:
    assert len(HELPERS) >= 49
    assert len(set(HELPERS)) == len(HELPERS)


@pytest.mark.parametrize("helper", HELPERS)
def test_a_helper_is_no_mistake_beside_a_right_launch(helper: str) -> None:
    launch = f"srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 {MEET} train.py\n"
    assert mistakes(f"{TWO}{helper}\n{launch}") == []


@pytest.mark.parametrize(
    "partner",
    [
        "ssh $second torchrun --nnodes=2 --node_rank=1 train.py &",
        "srun -w $second --nodes=1 ./start_second.sh &",
        "pdsh -w $others ./start_others.sh",
        "$START_OTHERS &",
        "parallel -S $others ./start.sh ::: 1",
    ],
)
def test_what_runs_beside_a_launcher_may_start_the_other_nodes(partner: str) -> None:
    assert mistakes(f"{TWO}{partner}\n{MISTAKES['launcher-on-one-node']}\n") == []


def test_what_has_ended_before_starts_nothing_that_is_waited_for() -> None:
    text = f"{TWO}srun ./prepare.sh\n{MISTAKES['launcher-on-one-node']}\n"
    assert mistakes(text) == ["launcher-on-one-node"]


#: (rule, level, command) on two nodes with eight GPUs and one task each.
WRONG = [
    ("separate-trainings", "mistake", "srun torchrun --nproc_per_node=8 train.py"),
    (
        "separate-trainings",
        "mistake",
        "srun python -m torch.distributed.launch --nproc_per_node=8 train.py",
    ),
    (
        "separate-trainings",
        "mistake",
        "srun deepspeed --num_nodes=$SLURM_NNODES --num_gpus=8 train.py --deepspeed ds.json",
    ),
    (
        "separate-trainings",
        "better",
        "srun accelerate launch --multi_gpu --num_processes $((SLURM_NNODES * 8)) -m lm_eval",
    ),
    (
        "no-node-rank",
        "better",
        "srun accelerate launch --num_machines $SLURM_NNODES --num_processes 16 "
        "--main_process_ip $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) train.py",
    ),
    (
        "no-node-rank",
        "mistake",
        "srun torchrun --nnodes=2 --nproc_per_node=8 --master_addr=$head_ip train.py",
    ),
    (
        "launcher-on-one-node",
        "better",
        "accelerate launch --num_machines 2 --num_processes 16 --config_file c.yaml "
        "--machine_rank $SLURM_NODEID --main_process_ip $(hostname) train.py",
    ),
    (
        "separate-trainings",
        "mistake",
        "srun -N $SLURM_NNODES -n $((SLURM_NNODES * 1)) torchrun --nproc_per_node=8 train.py",
    ),
    (
        "launcher-on-one-node",
        "mistake",
        f"python $(which torchrun) --nnodes=2 --nproc_per_node=8 {MEET} train.py",
    ),
    (
        "launcher-on-one-node",
        "mistake",
        f"torchrun --nnodes=${{SLURM_NNODES:-1}} --nproc_per_node=8 {MEET} train.py",
    ),
    ("launcher-on-one-node", "mistake", "deepspeed --num_gpus=8 train.py --deepspeed ds.json"),
    (
        "python-behind-launcher",
        "mistake",
        f"srun torchrun --nnodes 2 --nproc_per_node 8 {MEET} python train.py",
    ),
    (
        "same-rank",
        "mistake",
        "srun bash -c 'torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_LOCALID "
        "--master_addr=$HEAD train.py'",
    ),
    (
        "rank-of-batch-shell",
        "mistake",
        "srun accelerate launch --num_machines 2 --num_processes 16 --machine_rank "
        "${SLURM_NODEID:-0} --main_process_ip $HEAD train.py",
    ),
    (
        "local-rendezvous",
        "mistake",
        "srun bash -c 'torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d "
        "--rdzv_endpoint=$(hostname):29500 train.py'",
    ),
    (
        "local-rendezvous",
        "mistake",
        "all=$(scontrol show hostnames $SLURM_JOB_NODELIST)\nsrun torchrun --nnodes=2 "
        "--nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$all:29500 train.py # hosts",
    ),
    (
        "more-processes-than-gpus",
        "mistake",
        f"srun torchrun --nnodes=2 --nproc_per_node=$((SLURM_NNODES * 8)) {MEET} train.py",
    ),
    ("not-judged", "better", "jsrun -n 2 ./train"),
    # the parser cannot read $(((…)) && …)
    (
        "not-judged",
        "better",
        "srun torchrun --nnodes=2 --rdzv_conf=is_host=$(((SLURM_NODEID)) && echo 0 || echo 1) "
        "--rdzv_backend=c10d train.py",
    ),
]


@pytest.mark.parametrize(("rule", "level", "command"), WRONG)
def test_a_launch_that_does_not_fit_its_job(rule: str, level: str, command: str) -> None:
    all_told = told(f"{TWO}{command}\n", better=True)
    assert [one for one in all_told if rule == one[0] or one[0] != "not-judged"] == [(rule, level)]


#: Right, or beyond what the script shows.
NOT_WRONG = [
    "srun accelerate launch --num_processes $((SLURM_NNODES * 8)) --num_machines $SLURM_NNODES "
    "--rdzv_backend c10d --main_process_ip $head_ip train.py",
    "srun bash -c 'accelerate launch --num_processes $((SLURM_NNODES * 8)) --num_machines "
    "$SLURM_NNODES --machine_rank $SLURM_NODEID --main_process_ip $HEAD train.py'",
    # the launcher reads the variables that the batch shell exports
    "export PET_NNODES=2 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=$head_ip:29500\n"
    "srun torchrun --nproc_per_node=8 train.py",
    "srun bash -c 'export PET_NODE_RANK=$SLURM_NODEID; torchrun --nnodes=2 --nproc_per_node=8 "
    "--master_addr=$HEAD train.py'",
    "srun bash -c 'PET_NODE_RANK=$SLURM_NODEID torchrun --nnodes=2 --nproc_per_node=8 "
    "--master_addr=$HEAD train.py'",
    "srun bash -c 'export CUDA_VISIBLE_DEVICES=0,1; torchrun --nnodes=2 --nproc_per_node=2 "
    f"{MEET} train.py'",
    # each copy is told its share
    "srun bash -c 'torchrun --nproc_per_node=8 eval.py --shard $SLURM_NODEID'",
    "srun bash -c 'export SHARD=$SLURM_NODEID; torchrun --nproc_per_node=8 eval.py'",
    "srun --export=ALL,PET_NNODES=2 torchrun --nproc_per_node=8 train.py",
    "srun -N1 -n1 -w $second torchrun --nnodes=2 --node_rank=1 --nproc_per_node=8 train.py &\n"
    "srun -N1 -n1 -w $first torchrun --nnodes=2 --node_rank=0 --nproc_per_node=8 train.py",
    "horovodrun -np 16 -H $hosts python train.py",
    "python -m deepspeed.launcher.runner --hostfile hosts.txt train.py",
    "./start_others.sh &\ntorchrun --nproc_per_node=8 train.py",
    "srun python $(which torchrun) --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d train.py",
    "deepspeed --hostfile=hosts.txt --num_gpus=8 train.py",
    "deepspeed --hostfile hosts.txt --launcher openmpi train.py",
    "srun bash -c 'deepspeed --no_ssh --hostfile hosts.txt --node_rank $SLURM_NODEID train.py'",
    f"srun torchrun --nnodes=1:2 --nproc_per_node=8 {MEET} train.py",
    f"srun torchrun --nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=gpu {MEET} train.py",
    f"srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_GPUS_ON_NODE {MEET} train.py",
    f"srun torchrun --nnodes 2 --nproc_per_node 8 {MEET} --no_python python train.py",
    f"srun $WRAPPER torchrun --nproc_per_node=4 {MEET} train.py",
    f"srun torchrun $OPTIONS --nproc_per_node=4 {MEET} train.py",
    # the value of a variable in single quotes is that of the batch shell, if it exports it
    "export LAUNCH='torchrun --nnodes=2 --nproc_per_node=8'\n"
    "srun bash -c '$LAUNCH --node_rank $SLURM_NODEID --master_addr $HEAD train.py'",
]


@pytest.mark.parametrize("command", NOT_WRONG)
def test_a_launch_that_fits_or_cannot_be_read_is_no_mistake(command: str) -> None:
    assert mistakes(f"{TWO}{command}\n") == []


def test_launchers_that_see_the_same_gpus_collide_though_they_know_each_other() -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=4\n#SBATCH --exclusive\n"
    launch = f"srun torchrun --nnodes 4 --nproc_per_node 1 {MEET} train.py\n"
    shared = f"{head}#SBATCH --gpus-per-node=4\n{launch}"
    assert ("launcher-in-every-task", "better") in told(shared, better=True)
    own = f"{head}#SBATCH --gpus-per-task=2\n{launch}"
    assert ("launcher-in-every-task", "better") not in told(own, better=True)
    assert ("fewer-processes-than-gpus", "better") in told(own, better=True)


def test_fewer_tasks_than_their_limit_start_and_the_sentence_says_so() -> None:
    head = "#!/bin/bash\n#SBATCH --ntasks=1\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:2\n"
    script = read_script(f"{head}#SBATCH --ntasks-per-node=2\nsrun python train.py\n")
    (found,) = [one for one in lint(script, better=True) if one.rule == "tasks-disagree"]
    assert "1 of 2 tasks start" in found.reason
    assert "1 GPU stays idle" in found.reason
    newest = CachedSite(version=parse_version("26.05"))
    (found,) = [one for one in lint(script, newest) if one.rule == "tasks-disagree"]
    assert "never starts" in found.reason
    assert lint(script, CachedSite(version=parse_version("22.05"))) == []


def test_advice_is_in_the_words_of_the_launcher() -> None:
    launch = (
        "srun accelerate launch --num_machines 2 --num_processes 16 --machine_rank $SLURM_NODEID "
        "--main_process_ip $HEAD train.py\n"
    )
    (found,) = lint(read_script(TWO + launch))
    assert "accelerate launch --machine_rank=$SLURM_NODEID" in found.reason
    assert "torchrun" not in found.reason


def test_deepspeed_without_a_hostfile_waits_for_nobody() -> None:
    (found,) = lint(read_script(f"{TWO}deepspeed --num_nodes=2 --num_gpus=8 train.py\n"))
    assert "the others stay idle: a --hostfile names them" in found.reason


def test_a_rule_without_evidence_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="nobody says"):
        Rule("mine", "mistake", "says", "", lambda case: iter(()))


def test_every_finding_names_who_says_so() -> None:
    for rule, command in MISTAKES.items():
        (found,) = lint(read_script(f"{TWO}{command}\n"))
        assert found.rule == rule
        assert found.evidence


CONFIGURATION = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 0
main_process_ip: 'head'
num_machines: 2
num_processes: 16
rdzv_backend: static
"""


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("", "", "rank-of-batch-shell"),  # every node is number 0
        ("rdzv_backend: static", "rdzv_backend: c10d", None),
        ("num_machines: 2", "num_machines: 1", "nnodes-unlike"),
        ("num_processes: 16", "num_processes: 8", "fewer-processes-than-gpus"),
        ("distributed_type: MULTI_GPU", "distributed_type: DEEPSPEED", None),
    ],
)
def test_the_configuration_of_accelerate_is_read_where_it_can_be(
    old: str, new: str, rule: str | None
) -> None:
    text = CONFIGURATION.replace(old, new)
    if rule == "fewer-processes-than-gpus":
        text = text.replace("static", "c10d")
    launch = "srun accelerate launch --config_file conf/two.yaml train.py\n"
    beside = read_script(TWO + launch, "", {"conf/two.yaml": text}.__getitem__)
    within = read_script(f"{TWO}cat > conf/two.yaml <<'EOF'\n{text}EOF\n{launch}")
    for script in (beside, within):
        assert [one.rule for one in lint(script)][-1:] == ([rule] if rule else [])


def test_a_configuration_that_is_not_there_is_not_known() -> None:
    launch = "srun accelerate launch --config_file conf/two.yaml train.py\n"
    assert told(TWO + launch, better=True) == [("not-judged", "better")]


def test_a_file_beside_the_script_is_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIGURATION)
    (tmp_path / "large.yaml").write_text(CONFIGURATION + "#" * 70_000)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    read = read_beside(str(tmp_path / "job.sh"))
    assert read("c.yaml") == CONFIGURATION
    for path in ("none.yaml", "large.yaml", "bytes.yaml", "a\0b", "."):
        assert read(path) == ""


@pytest.mark.parametrize("nodes", ["n[1-", "n[1-x]", "n[", "[1-2"])
def test_a_list_of_hosts_that_cannot_be_read_ends_nothing(nodes: str) -> None:
    lint(read_script(f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --nodelist={nodes}\nsrun ./a\n"))


@pytest.mark.parametrize("name", ["A(", "A*", "[", "A)("])
def test_an_odd_name_of_a_program_ends_nothing(name: str) -> None:
    lint(read_script(f'{TWO}torchrun "${{{name}}}/train.py"\n'), better=True)


RETRIES = (
    "podwright slurm retry -- ",
    "exec podwright slurm retry --max 3 -- ",
    "/opt/podwright/bin/podwright slurm retry --max=2 ",
)


@pytest.mark.parametrize("retry", RETRIES)
def test_retry_starts_what_follows_it_and_nothing_more(retry: str) -> None:
    for rule, command in MISTAKES.items():
        assert mistakes(f"{TWO}{retry}{command}\n") == [rule], command
    launch = f"srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 {MEET} train.py\n"
    assert mistakes(f"{TWO}{retry}{launch}") == []
