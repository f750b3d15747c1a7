"""Mistakes in several wordings: what lint has to find, and at which of its levels.

A wording is (expected line, script without its first line); the first line is #!/bin/bash unless
the script brings its own. `MISTAKES` are found without being asked for; `BETTER` may be meant, so
that lint tells them only with --level better.
"""

from __future__ import annotations

from podwright.gpu.lint import CachedSite, PartitionLimits

Wordings = dict[str, tuple[str, list[tuple[int, str]]]]

TWO = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
ONE = "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"
HEAD = 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'

MISTAKES: Wordings = {
    "CRLF": ("dos-line-breaks", [
        (1, "#!/bin/bash\r\n#SBATCH -n1\r\n\r\nhostname\r\n"),
        (1, "#!/bin/bash -l\r\n\r\n#SBATCH --gres=gpu:1\r\n\r\npython a.py\r\n"),
        (3, "#!/bin/bash\n#SBATCH -n1\n#SBATCH -t 5\r\nhostname\n"),
        (1, "#!/usr/bin/env bash\r\n#SBATCH --array=1-3\r\nsrun ./a\r\n"),
        (5, "#!/bin/sh\n#SBATCH -n1\n\nhostname\ndate\r\n"),
    ]),
    "no shebang": ("no-shebang", [
        (1, "#SBATCH --nodes=1\nhostname\n"),
        (1, "\n#!/bin/bash\n#SBATCH --nodes=1\nhostname\n"),
        (1, "# my job\n#SBATCH --gres=gpu:1\npython train.py\n"),
        (1, "\ufeff#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"),
        (1, "# !/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"),
    ]),
    "blanks around =": ("blanks-around-equals", [
        (2, "#SBATCH --gres = gpu:4\nsrun ./a\n"),
        (2, "#SBATCH --nodes = 2\nsrun ./a\n"),
        (2, "#SBATCH --job-name= two\nsrun ./a\n"),
        (3, "#SBATCH -n 4\n#SBATCH --time =1:00:00\nsrun ./a\n"),
        (2, "#SBATCH --output = out.log\nsrun ./a\n"),
    ]),
    "$NGPU in a directive": ("not-expanded", [
        (2, "#SBATCH --gres=gpu:$NGPU\nsrun ./a\n"),
        (2, "#SBATCH --nodes=${NODES}\nsrun ./a\n"),
        (2, "#SBATCH -J run-$MODEL\nsrun ./a\n"),
        (3, "#SBATCH -n1\n#SBATCH --time=$HOURS:00:00\nsrun ./a\n"),
        (2, "#SBATCH --array=0-$((N-1))\nsrun ./a\n"),
    ]),
    "$HOME or ~ in --output": ("not-expanded", [
        (2, "#SBATCH --output=$HOME/logs/%j.out\nsrun ./a\n"),
        (2, "#SBATCH -o ~/logs/%j.out\nsrun ./a\n"),
        (2, "#SBATCH --error=${HOME}/%j.err\nsrun ./a\n"),
        (2, "#SBATCH --output=/scratch/$USER/%x.out\nsrun ./a\n"),
        (2, "#SBATCH --chdir=~/project\nsrun ./a\n"),
    ]),
    "no #SBATCH at all": ("no-directive", [
        (2, "# SBATCH --gres=gpu:4\nsrun ./a\n"),
        (2, "## SBATCH --nodes=2\nsrun ./a\n"),
        (3, "#SBATCH -n1\n#SBACTH --gres=gpu:1\nsrun ./a\n"),
        (3, "#SBATCH -n1\n  #SBATCH --gres=gpu:1\nsrun ./a\n"),
        (3, "#SBATCH -n1\n#sbatch --gres=gpu:1\nsrun ./a\n"),
    ]),
    "directives after the first command": ("late-directive", [
        (3, "module load cuda\n#SBATCH --gres=gpu:1\nsrun ./a\n"),
        (4, "#SBATCH -n1\nset -e\n#SBATCH --time=1:00:00\nsrun ./a\n"),
        (3, "export A=1\n#SBATCH -N2\nsrun ./a\n"),
        (5, "#SBATCH -n1\n\ncd work\n#SBATCH --mem=4G  # more\nsrun ./a\n"),
        (3, "echo start; date\n#SBATCH -p gpu\nsrun ./a\n"),
    ]),
    "an empty or typed $SLURM_GPUS_PER_NODE": ("gpu-variable", [
        (3, "#SBATCH --gres=gpu:4\ntorchrun --nproc_per_node=$SLURM_GPUS_PER_NODE a.py\n"),
        (3, "#SBATCH --gpus-per-node=a100:4\n"
            "torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE a.py\n"),
        (3, "#SBATCH --gres=gpu:a100:4\n"
            "export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_GPUS_PER_NODE))\n"
            "srun python a.py\n"),
        (4, "#SBATCH --gpus-per-node=4\nG=$SLURM_GPUS\n"
            "accelerate launch --num_processes $G a.py\n"),
        (3, "#SBATCH --gpus=h100:4\ntorchrun --standalone --nproc-per-node ${SLURM_GPUS} a.py\n"),
    ]),
    "$SLURM_NODEID in the batch shell": ("rank-of-batch-shell", [
        (6, TWO + HEAD + "srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID "
            "--master_addr=$HEAD a.py\n"),
        (7, TWO + HEAD + "NODE_RANK=$SLURM_NODEID\nsrun python -m torch.distributed.launch "
            "--nnodes=2 --nproc_per_node=4 --node_rank=$NODE_RANK --master_addr=$HEAD a.py\n"),
        (6, TWO + HEAD + 'srun bash -c "torchrun --nnodes 2 --nproc_per_node 4 --node_rank '
            '$SLURM_PROCID --master_addr $HEAD a.py"\n'),
        (6, TWO + HEAD + "srun accelerate launch --num_machines 2 --num_processes 8 "
            "--machine_rank $SLURM_NODEID --main_process_ip $HEAD a.py\n"),
        (5, TWO + "export RANK=$SLURM_PROCID\nsrun python a.py\n"),
    ]),
    "a launcher on several nodes without srun": ("launcher-on-one-node", [
        (6, TWO + HEAD + "torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
            "--rdzv_endpoint=$HEAD:29500 a.py\n"),
        (5, TWO + "torchrun --nproc_per_node=4 a.py\n"),
        (5, TWO + "accelerate launch --multi_gpu --num_machines 2 --num_processes 8 a.py\n"),
        (5, TWO + "python -m torch.distributed.run --nnodes=$SLURM_NNODES --nproc_per_node=4 "
            "a.py\n"),
        (6, TWO + "CMD='torchrun --nnodes 2 --nproc_per_node 4 a.py'\n$CMD\n"),
    ]),
    "-n 8 with srun torchrun": ("launcher-in-every-task", [
        (2, "#SBATCH -n 8\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\nsrun torchrun "
            "--nproc_per_node=8 a.py\n"),
        (3, "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n"
            + HEAD + "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
            "--rdzv_endpoint=$HEAD:29500 a.py\n"),
        (2, "#SBATCH -n 8\n#SBATCH --gres=gpu:8\n"
            "srun torchrun --standalone --nproc_per_node=gpu a.py\n"),
        (4, "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\nsrun -n 4 accelerate launch "
            "--num_processes 4 a.py\n"),
        (3, "#SBATCH --nodes=1\n#SBATCH --tasks-per-node=4\n#SBATCH --gpus-per-node=4\n"
            "srun bash -c 'torchrun --nproc_per_node=4 a.py'\n"),
    ]),
    "--nnodes unlike the nodes": ("nnodes-unlike", [
        (6, TWO + HEAD + "srun torchrun --nnodes=4 --nproc_per_node=4 --rdzv_backend=c10d "
            "--rdzv_endpoint=$HEAD:29500 a.py\n"),
        (4, ONE + "torchrun --nnodes=2 --nproc_per_node=4 a.py\n"),
        (6, TWO + HEAD + "srun bash -c 'accelerate launch --num_machines 4 --num_processes 16 "
            "--machine_rank $SLURM_NODEID a.py'\n"),
        (8, TWO + HEAD + "N=3\nsrun torchrun --nproc_per_node=4 \\\n"
            "  --nnodes=$N --rdzv_backend=c10d "
            "--rdzv_endpoint=$HEAD:29500 a.py\n"),
        (6, TWO + HEAD + "srun torchrun --nnodes=1 --nproc_per_node=4 --standalone a.py\n"),
    ]),
    "fewer processes than GPUs": ("fewer-processes-than-gpus", [
        (4, ONE + "torchrun --nproc_per_node=2 a.py\n"),
        (4, "#SBATCH -N1\n#SBATCH --gres=gpu:8\naccelerate launch --num_processes=4 a.py\n"),
        (6, TWO + HEAD + "srun torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d "
            "--rdzv_endpoint=$HEAD:29500 a.py\n"),
        (4, "#SBATCH -N1\n#SBATCH --gpus=4\ndeepspeed --num_gpus=2 a.py\n"),
        (5, ONE + "N=3\npython -m torch.distributed.run --standalone --nproc-per-node $N a.py\n"),
    ]),
    "rdzv_endpoint=localhost": ("local-rendezvous|master-addr", [
        (5, TWO + "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
            "--rdzv_endpoint=localhost:29500 a.py\n"),
        (5, TWO + "export MASTER_ADDR=localhost\nsrun python a.py\n"),
        (5, TWO + "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend c10d "
            "--rdzv_endpoint 127.0.0.1:29500 a.py\n"),
        (5, TWO + "MASTER_ADDR=127.0.0.1\nsrun torchrun --nnodes=2 --nproc_per_node=4 "
            "--rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 a.py\n"),
        (5, TWO + "srun bash -c 'accelerate launch --num_machines 2 --num_processes 8 "
            "--machine_rank $SLURM_NODEID --main_process_ip localhost a.py'\n"),
    ]),
    "& without wait": ("no-wait", [
        (5, "#SBATCH -n 4\n#SBATCH --gres=gpu:4\nfor i in 0 1 2 3; do\n"
            "  srun --exact -n1 ./a $i &\ndone\n"),
        (3, "#SBATCH --gres=gpu:2\npython a.py &\n"),
        (4, "#SBATCH -n2\nsrun --exact -n1 ./a &\nsrun --exact -n1 ./b &\necho done\n"),
        (5, "#SBATCH -n2\nfor ((i=0;i<2;i++))\ndo\n"
            "  CUDA_VISIBLE_DEVICES=$i python a.py $i > $i.log 2>&1 &\ndone\n"),
        (3, "#SBATCH --gres=gpu:1\nnohup python train.py > log 2>&1 &\n"),
    ]),
    "steps without --exact": ("steps-not-exact", [
        (5, "#SBATCH -N1\n#SBATCH -n 4\nfor i in 0 1 2 3; do\n  srun -n1 ./a $i &\ndone\nwait\n"),
        (4, "#SBATCH -N1\n#SBATCH -n 2\nsrun -n 1 ./a &\nsrun -n 1 ./b &\nwait\n"),
        (6, "#SBATCH --nodes=1\n#SBATCH --ntasks=4\n#SBATCH --gres=gpu:4\nfor i in $(seq 4); do\n"
            "  srun --ntasks=1 --gres=gpu:1 python a.py $i &\ndone\nwait\n"),
        (6, "#SBATCH -N 1\n#SBATCH -n 8\nwhile read f\ndo\n  srun -N1 -n1 ./a $f &\n"
            "done < list\nwait\n"),
        (5, "#SBATCH -N1\n#SBATCH --ntasks-per-node=4\nfor x in a b c d; do\n"
            "  srun --nodes=1 --ntasks=1 ./$x > $x.log &\ndone\nwait\n"),
    ]),
    "WORLD_SIZE too small": ("world-size", [
        (4, "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nexport WORLD_SIZE=4\n"
            "srun python a.py\n"),
        (3, "#SBATCH -N1 -n 8 --gres=gpu:8\nexport WORLD_SIZE=2\nsrun python a.py\n"),
        (4, "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nexport WORLD_SIZE=8\n"
            "srun -u python -u a.py\n"),
        (4, "#SBATCH --nodes=2\n#SBATCH --ntasks=16\nWORLD_SIZE=4\nexport WORLD_SIZE\n"
            "srun python a.py\n"),
        (3, "#SBATCH -N2 --tasks-per-node=2\nexport WORLD_SIZE=2 MASTER_PORT=1\n"
            "srun python a.py\n"),
    ]),
    "conflicting ways of asking": ("", [
        (3, "#SBATCH --mem=8G\n#SBATCH --mem-per-cpu=2G\nsrun ./a\n"),
        (3, "#SBATCH --gres=gpu:4\n#SBATCH --gpus-per-node=2\nsrun ./a\n"),
        (3, "#SBATCH --gres=gpu:4\n#SBATCH --gpus=2\nsrun ./a\n"),
        (2, "#SBATCH --nodes=2\n#SBATCH --nodes=4\nsrun ./a\n"),
        (3, "#SBATCH --nodes=2\n#SBATCH --ntasks=16\n#SBATCH --ntasks-per-node=4\nsrun ./a\n"),
    ]),
    "a time over the partition's limit": ("over-the-limit", [
        (3, "#SBATCH -p short\n#SBATCH --time=2:00:00\nsrun ./a\n"),
        (2, "#SBATCH -t 1-12\n#SBATCH --partition=short\nsrun ./a\n"),
        (2, "#SBATCH --time=3-00:00:01\nsrun ./a\n"),
        (3, "#SBATCH --partition=short\n#SBATCH --time=UNLIMITED\nsrun ./a\n"),
        (3, "#SBATCH --partition=short,long\n#SBATCH --time=4320:01\n#SBATCH -n1\nsrun ./a\n"),
    ]),
    "wrong array syntax": ("bad-value", [
        (2, "#SBATCH --array=1..10\nsrun ./a\n"),
        (2, "#SBATCH -a 1:10\nsrun ./a\n"),
        (2, "#SBATCH --array=10-1\nsrun ./a\n"),
        (2, "#SBATCH --array=1-\nsrun ./a\n"),
        (2, "#SBATCH --array=a-c\nsrun ./a\n"),
    ]),
    "one plain python over several nodes": ("one-process-of-many", [
        (4, "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\npython train.py\n"),
        (4, "#SBATCH -N 4\n#SBATCH --gres=gpu:4\npython3 -u train.py --gpus 4\n"),
        (5, "#SBATCH --nodes=2\n#SBATCH -n 16\nmodule load x\n/opt/env/bin/python train.py\n"),
        (3, "#SBATCH -N2 -n2 --gres=gpu:1\ntime python -m package.train\n"),
        (4, "#SBATCH --nodes=8\nsource venv/bin/activate\npython train.py --nodes 8\n"),
    ]),
}  # fmt: skip

BETTER: Wordings = {
    "# SBATCH beside others": ("no-directive", [
        (3, "#SBATCH -n1\n# SBATCH --gres=gpu:1\nsrun ./a\n"),
        (3, "#SBATCH -n1\n## SBATCH --time=1:00\nsrun ./a\n"),
        (2, "# SBATCH -p gpu\n#SBATCH -n1\nsrun ./a\n"),
        (3, "#SBATCH -n1\n#  SBATCH --mem=4G\nsrun ./a\n"),
        (3, "#SBATCH -n1\n# SBATCH --output=%j.out --error=%j.err\nsrun ./a\n"),
    ]),
    "torchrun without GPUs": ("no-gpus-asked", [
        (3, "#SBATCH --nodes=1\ntorchrun --standalone --nproc_per_node=4 a.py\n"),
        (3, "#SBATCH -n1\nsrun torchrun --nproc_per_node=4 a.py\n"),
        (3, "#SBATCH -c 8\naccelerate launch a.py\n"),
        (3, "#SBATCH -p gpu\ndeepspeed --num_gpus=4 a.py\n"),
        (3, "#SBATCH -N1\npython -m torch.distributed.run --nproc_per_node=2 a.py\n"),
    ]),
    "many tasks around one plain python": ("one-process-of-many", [
        (3, "#SBATCH -n 8\npython train.py\n"),
        (4, "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\npython train.py\n"),
        (3, "#SBATCH --ntasks=4 --gres=gpu:4\npython3 -u train.py\n"),
        (4, "#SBATCH -N1\n#SBATCH --ntasks=16\npython -m package\n"),
        (4, "#SBATCH --tasks-per-node=8\nconda activate x\ntime python a.py\n"),
    ]),
}  # fmt: skip

BASH = "#!/bin/bash\n"
PAIR = BASH + "#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8\n"
EIGHT = BASH + "#SBATCH -N1 --ntasks-per-node=8 --gres=gpu:8\n"
WORLD = BASH + "#SBATCH -N2 --ntasks-per-node=4 --gpus-per-node=4\n"

#: What real sbatch refuses (tests/outer/gpu/test_lint.py asks it).
REFUSED = [
    ("typographic-dash", 2, BASH + "#SBATCH --nodes=2\u00a0--mem=4G\nsrun ./a\n"),
    ("typographic-dash", 2, BASH + "#SBATCH\u00a0--nodes=2\nsrun ./a\n"),
    ("typographic-dash", 2, BASH + "#SBATCH --nodes=2\u200b # two\nsrun ./a\n"),
    ("no-shebang", 1, ""),
    ("no-shebang", 1, " \n\n"),
    ("no-shebang", 3, BASH + "#SBATCH -n1\necho a\0b\n"),
    ("stray-word", 2, BASH + "#SBATCH --mem=64 GB\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --mail-type=FINISH\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --exclusive=yes\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --signal=90@SIGUSR1\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --signal=B:SAVE@90\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --gres-flags=enforce\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --kill-on-invalid-dep=maybe\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --open-mode=new\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --dependency=afterokk:1\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --gres=gpus:1\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --gres=gpu4\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --gres=1\nsrun ./a\n"),
    ("unknown-option", 2, BASH + "#SBATCH --gpu=2\nsrun ./a\n"),
    ("unknown-option", 2, BASH + "#SBATCH --ntasks-per=2\nsrun ./a\n"),
]
#: What it takes without a word.
SILENT = [
    ("bad-value", 2, BASH + "#SBATCH --gres=gpu:-1\nsrun ./a\n"),
    ("bad-value", 2, BASH + "#SBATCH --mail-user\n#SBATCH --time=10\nsrun ./a\n"),
    ("no-directive", 3, BASH + "#SBATCH --nodes=1 \\\n  --gres=gpu:1\nsrun ./a\n"),
    ("no-directive", 3, BASH + "#SBATCH -N1\nSBATCH --gres=gpu:1\nsrun ./a\n"),
    ("world-size", 3, WORLD + "export WORLD_SIZE=$SLURM_NNODES\nsrun python t.py\n"),
    ("world-size", 3, WORLD + "export WORLD_SIZE=${SLURM_GPUS_ON_NODE}\nsrun python t.py\n"),
    ("world-size", 3, WORLD + "WORLD_SIZE=4 srun python -u t.py\n"),
    ("world-size", 3, PAIR + "export WORLD_SIZE=1\nsrun python t.py\n"),
    ("launcher-on-one-node", 3, PAIR + "conda run -n x torchrun --nnodes=2 t.py\n"),
    ("launcher-in-every-task", 2, EIGHT + "srun --container-image=a accelerate launch t.py\n"),
    ("launcher-in-every-task", 2, EIGHT + "srun --container-image a accelerate launch t.py\n"),
    ("launcher-in-every-task", 2, EIGHT + "srun --no-container-mount-home torchrun "
        "--standalone --nproc-per-node=8 t.py\n"),
    ("no-wait", 4, BASH + "#SBATCH -N1 --gres=gpu:2\npython a.py &\npython b.py &\nexit 0\n"),
    ("no-wait", 3, BASH + "#SBATCH -N1 --gres=gpu:2\npython a.py &\ndate; nvidia-smi\n"),
    ("rank-of-batch-shell", 4, PAIR + "CMD=\"torchrun --nnodes 2 --node_rank \\$SLURM_NODEID "
        "--master_addr $H t.py\"\nsrun $CMD\n"),
    ("rank-of-batch-shell", 3, PAIR + "srun accelerate launch --num_machines 2 --num_processes 16 "
        "--machine_rank '${SLURM_PROCID}' --main_process_ip $H t.py\n"),
    ("rank-of-batch-shell", 4, PAIR + "R=${SLURM_NODEID:-0}\nsrun torchrun --nnodes=2 "
        "--nproc-per-node=8 --node_rank=$R --master_addr=$H t.py\n"),
    ("more-processes-than-gpus", 3, BASH + "#SBATCH --gpus=1\n"
        "accelerate launch --num_processes 2 t.py\n"),
    ("no-wait", 4, BASH + "#SBATCH -N1 --gres=gpu:2\nfor f in a b; do\n  python $f &\n  sleep 2\n"
        "done\n"),
    ("gpu-variable", 3, WORLD.replace("gpus-per-node=4", "gres=gpu:4")
        + "export WORLD_SIZE=$(expr $SLURM_NNODES \\* $SLURM_GPUS_PER_NODE)\nsrun python t.py\n"),
    ("gpu-variable", 3, BASH + "#SBATCH --gres=gpu:4\n"
        "N=$(echo \"2 * $SLURM_GPUS_PER_NODE\" | bc)\nsrun ./a $N\n"),
    ("one-process-of-many", 5, PAIR + "hostname\nnvidia-smi\npython train.py\n"),
]  # fmt: skip

#: Nothing is wrong with these.
RIGHT = [
    # one task of a node may start the others itself
    PAIR + "export WORLD_SIZE=16\nsrun python main.py --multiprocessing-distributed\n",
    WORLD + "export WORLD_SIZE=$((SLURM_NNODES * 4))\nsrun python t.py\n",
    WORLD + "WORLD_SIZE=8 srun python t.py\n",
    BASH + '#SBATCH -J "a\u00a0b" --comment="5\u202fGB"\nsrun ./a\n',
    BASH + "#SBATCH --nodes=1 \\\n#SBATCH --gres=gpu:1\nsrun ./a\n",
    BASH + "#SBATCH --mail-type=BEGIN,end,Fail,TIME_LIMIT_80\nsrun ./a\n",
    BASH + "#SBATCH --exclusive=user --open-mode=append --gres-flags=disable-binding\nsrun ./a\n",
    BASH + "#SBATCH --signal=USR1 --kill-on-invalid-dep=yes\nsrun ./a\n",
    BASH + "#SBATCH --signal=R:SIGTERM@60\nsrun ./a\n",
    BASH + "#SBATCH --signal=B:10@300\nsrun ./a\n",
    BASH + "#SBATCH --dependency=afterok:1:2,after:3+5?singleton\nsrun ./a\n",
    BASH + "#SBATCH --dependency=4711\nsrun ./a\n",
    BASH + "#SBATCH --gres=lscratch:100,gpu:a100:1\nsrun ./a\n",
    BASH + "#SBATCH --nice\n#SBATCH --time=10\nsrun ./a\n",
    PAIR + "srun bash -c 'torchrun --nnodes=2 --nproc-per-node=8 --node_rank=$SLURM_NODEID "
    "--master_addr=a t.py'\n",
    PAIR + "C='torchrun --nnodes=2 --nproc-per-node=8 --node_rank=$SLURM_NODEID --master_addr=a "
    't.py\'\nsrun bash -c "$C"\n',
    BASH + "#SBATCH --gpus=4\ntorchrun --standalone --nproc-per-node=4 t.py\n",
    BASH + "#SBATCH --gpus=1 --ntasks=1\nN=$(expr $SLURM_GPUS + 1)\nsrun ./a $N\n",
    BASH + "#SBATCH --gpus=1\nsrun --jobid=$OTHER torchrun --nproc-per-node=8 t.py\n",
    WORLD + "export MASTER_ADDR=localhost\nexport MASTER_ADDR=$(hostname)\nsrun python t.py\n",
    BASH + "#SBATCH -N1\nconda activate x\npython a.py & wait\n",
]  # fmt: skip

SITE = CachedSite(
    partitions={"short": PartitionLimits(60, 2), "long": PartitionLimits(4320, None)},
    default_partition="long",
)


def script(text: str) -> str:
    """The whole script."""
    own = text.startswith(("#!", "\n", "\ufeff", "# !", "# my job", "#SBATCH --nodes=1\nhostname"))
    return text if own else f"#!/bin/bash\n{text}"
