"""Wordings of mistakes that lint once missed, and correct scripts that it once reported."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.lint import fix, lint, read_script

HEAD = "#!/bin/bash\n"
TWO = HEAD + "#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8\n"
EIGHT = HEAD + "#SBATCH -N1 --ntasks-per-node=8 --gres=gpu:8\n"
WORLD = HEAD + "#SBATCH -N2 --ntasks-per-node=4 --gpus-per-node=4\n"

#: What real sbatch refuses (tests/outer/gpu/test_lint.py asks it).
REFUSED = [
    ("typographic-dash", 2, HEAD + "#SBATCH --nodes=2\u00a0--mem=4G\nsrun ./a\n"),
    ("typographic-dash", 2, HEAD + "#SBATCH\u00a0--nodes=2\nsrun ./a\n"),
    ("typographic-dash", 2, HEAD + "#SBATCH --nodes=2\u200b # two\nsrun ./a\n"),
    ("no-shebang", 1, ""),
    ("no-shebang", 1, " \n\n"),
    ("no-shebang", 3, HEAD + "#SBATCH -n1\necho a\0b\n"),
    ("stray-word", 2, HEAD + "#SBATCH --mem=64 GB\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --mail-type=FINISH\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --exclusive=yes\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --signal=90@SIGUSR1\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --signal=B:SAVE@90\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --gres-flags=enforce\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --kill-on-invalid-dep=maybe\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --open-mode=new\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --dependency=afterokk:1\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --gres=gpus:1\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --gres=gpu4\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --gres=1\nsrun ./a\n"),
    ("unknown-option", 2, HEAD + "#SBATCH --gpu=2\nsrun ./a\n"),
    ("unknown-option", 2, HEAD + "#SBATCH --ntasks-per=2\nsrun ./a\n"),
]
#: What it takes without a word.
SILENT = [
    ("bad-value", 2, HEAD + "#SBATCH --gres=gpu:-1\nsrun ./a\n"),
    ("bad-value", 2, HEAD + "#SBATCH --mail-user\n#SBATCH --time=10\nsrun ./a\n"),
    ("no-directive", 3, HEAD + "#SBATCH --nodes=1 \\\n  --gres=gpu:1\nsrun ./a\n"),
    ("no-directive", 3, HEAD + "#SBATCH -N1\nSBATCH --gres=gpu:1\nsrun ./a\n"),
    ("world-size", 3, WORLD + "export WORLD_SIZE=$SLURM_NNODES\nsrun python t.py\n"),
    ("world-size", 3, WORLD + "export WORLD_SIZE=${SLURM_GPUS_ON_NODE}\nsrun python t.py\n"),
    ("world-size", 3, WORLD + "WORLD_SIZE=4 srun python -u t.py\n"),
    ("world-size", 3, TWO + "export WORLD_SIZE=1\nsrun python t.py\n"),
    ("launcher-on-one-node", 3, TWO + "conda run -n x torchrun --nnodes=2 t.py\n"),
    ("launcher-in-every-task", 2, EIGHT + "srun --container-image=a accelerate launch t.py\n"),
    ("launcher-in-every-task", 2, EIGHT + "srun --no-container-mount-home torchrun "
        "--standalone --nproc-per-node=8 t.py\n"),
    ("no-wait", 4, HEAD + "#SBATCH -N1 --gres=gpu:2\npython a.py &\npython b.py &\nexit 0\n"),
    ("no-wait", 3, HEAD + "#SBATCH -N1 --gres=gpu:2\npython a.py &\ndate; nvidia-smi\n"),
    ("rank-of-batch-shell", 4, TWO + "CMD=\"torchrun --nnodes 2 --node_rank \\$SLURM_NODEID "
        "--master_addr $H t.py\"\nsrun $CMD\n"),
    ("rank-of-batch-shell", 3, TWO + "srun accelerate launch --num_machines 2 --num_processes 16 "
        "--machine_rank '${SLURM_PROCID}' --main_process_ip $H t.py\n"),
    ("rank-of-batch-shell", 4, TWO + "R=${SLURM_NODEID:-0}\nsrun torchrun --nnodes=2 "
        "--nproc-per-node=8 --node_rank=$R --master_addr=$H t.py\n"),
    ("more-processes-than-gpus", 3, HEAD + "#SBATCH --gpus=1\n"
        "accelerate launch --num_processes 2 t.py\n"),
    ("no-wait", 4, HEAD + "#SBATCH -N1 --gres=gpu:2\nfor f in a b; do\n  python $f &\n  sleep 2\n"
        "done\n"),
    ("gpu-variable", 3, WORLD.replace("gpus-per-node=4", "gres=gpu:4")
        + "export WORLD_SIZE=$(expr $SLURM_NNODES \\* $SLURM_GPUS_PER_NODE)\nsrun python t.py\n"),
    ("gpu-variable", 3, HEAD + "#SBATCH --gres=gpu:4\n"
        "N=$(echo \"2 * $SLURM_GPUS_PER_NODE\" | bc)\nsrun ./a $N\n"),
    ("one-process-of-many", 5, TWO + "hostname\nnvidia-smi\npython train.py\n"),
]  # fmt: skip

RIGHT = [
    # one task of a node may start the others itself
    TWO + "export WORLD_SIZE=16\nsrun python main.py --multiprocessing-distributed\n",
    WORLD + "export WORLD_SIZE=$((SLURM_NNODES * 4))\nsrun python t.py\n",
    WORLD + "WORLD_SIZE=8 srun python t.py\n",
    HEAD + '#SBATCH -J "a\u00a0b" --comment="5\u202fGB"\nsrun ./a\n',
    HEAD + "#SBATCH --nodes=1 \\\n#SBATCH --gres=gpu:1\nsrun ./a\n",
    HEAD + "#SBATCH --mail-type=BEGIN,end,Fail,TIME_LIMIT_80\nsrun ./a\n",
    HEAD + "#SBATCH --exclusive=user --open-mode=append --gres-flags=disable-binding\nsrun ./a\n",
    HEAD + "#SBATCH --signal=USR1 --kill-on-invalid-dep=yes\nsrun ./a\n",
    HEAD + "#SBATCH --signal=R:SIGTERM@60\nsrun ./a\n",
    HEAD + "#SBATCH --signal=B:10@300\nsrun ./a\n",
    HEAD + "#SBATCH --dependency=afterok:1:2,after:3+5?singleton\nsrun ./a\n",
    HEAD + "#SBATCH --dependency=4711\nsrun ./a\n",
    HEAD + "#SBATCH --gres=lscratch:100,gpu:a100:1\nsrun ./a\n",
    HEAD + "#SBATCH --nice\n#SBATCH --time=10\nsrun ./a\n",
    TWO + "srun bash -c 'torchrun --nnodes=2 --nproc-per-node=8 --node_rank=$SLURM_NODEID "
    "--master_addr=a t.py'\n",
    TWO + "C='torchrun --nnodes=2 --nproc-per-node=8 --node_rank=$SLURM_NODEID --master_addr=a "
    't.py\'\nsrun bash -c "$C"\n',
    HEAD + "#SBATCH --gpus=4\ntorchrun --standalone --nproc-per-node=4 t.py\n",
    HEAD + "#SBATCH --gpus=1 --ntasks=1\nN=$(expr $SLURM_GPUS + 1)\nsrun ./a $N\n",
    HEAD + "#SBATCH --gpus=1\nsrun --jobid=$OTHER torchrun --nproc-per-node=8 t.py\n",
    WORLD + "export MASTER_ADDR=localhost\nexport MASTER_ADDR=$(hostname)\nsrun python t.py\n",
    HEAD + "#SBATCH -N1\nconda activate x\npython a.py & wait\n",
]  # fmt: skip


@pytest.mark.parametrize(("rule", "line", "text"), REFUSED + SILENT)
def test_a_mistake_in_another_wording(rule: str, line: int, text: str) -> None:
    assert (rule, line) in [(one.rule, one.line) for one in lint(read_script(text))]


@pytest.mark.parametrize("text", RIGHT)
def test_nothing_is_wrong_with_it(text: str) -> None:
    assert lint(read_script(text)) == []
    assert fix(text) == text


def test_blanks_of_web_pages_are_written_anew() -> None:
    for text in (one for rule, _, one in REFUSED if rule == "typographic-dash"):
        after = fix(text)
        assert after == text.replace("\u00a0", " ").replace("\u200b", " ")
        assert lint(read_script(after)) == []


def test_a_file_in_utf_16_is_called_so() -> None:
    for code in ("utf-16", "utf-16-le", "utf-16-be"):
        text = (HEAD + "#SBATCH -n1\nsrun ./a\n").encode(code).decode("utf-8", "surrogateescape")
        assert ["UTF-16" in one.reason for one in lint(read_script(text))] == [True]
        assert fix(text) == text


def test_bytes_that_are_no_text_and_odd_names_make_no_bad_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "my job\udce9.sh"
    Path(os.fsencode(name).decode("utf-8", "surrogateescape")).write_bytes(
        b"#!/bin/bash\n#SBATCH --gres=gpu:1:v100 # caf\xe9\nsrun ./a\n"
    )
    for form in ("json", "sarif"):
        assert main(["slurm", "lint", f"--format={form}", "--fix", name]) == 1
        said = json.loads(capsys.readouterr().out)
        json.dumps(said, ensure_ascii=False).encode()  # strictly
    (result,) = said["runs"][0]["results"] or [None]
    assert result is None
    assert main(["slurm", "lint", "--format=sarif", name]) == 1
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    where = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert where == "my%20job%E9.sh"
