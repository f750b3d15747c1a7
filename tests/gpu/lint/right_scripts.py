"""Scripts that are right, or whose mistake cannot be seen: no rule calls one a mistake."""

from __future__ import annotations

TWO = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"
EIGHT = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n"
ONE = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"

RIGHT_LAUNCHES = {
    "a function": (
        TWO + "train() {\n"
        " srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py\n"
        "}\n"
        "train\n"
    ),
    "either way": (
        TWO + "if [ $SLURM_NNODES -gt 1 ]; then srun torchrun --nnodes=2 --nproc_per_node=4 "
        "--rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py; else torchrun --nproc_per_node=4 "
        "t.py; fi\n"
    ),
    "a step for each node": (
        TWO + "i=0\n"
        "for n in $(scontrol show hostnames); do\n"
        " srun -N1 -n1 -w $n torchrun --nnodes=2 --node_rank=$i --nproc_per_node=4 "
        "--master_addr=$H t.py &\n"
        " i=$((i+1))\n"
        "done\n"
        "wait\n"
    ),
    "ssh to each node": (
        TWO + 'for n in $(scontrol show hostnames); do ssh $n "cd $PWD; torchrun --nnodes=2 '
        '--nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py" & done\n'
        "wait\n"
    ),
    "pdsh": (TWO + 'pdsh -w $NODES "torchrun --nnodes=2 --nproc_per_node=4 t.py"\n'),
    "a script in each task": (TWO + "srun bash run.sh\n"),
    "one after the other": (ONE + "torchrun --nproc_per_node=4 t.py\npython eval.py\n"),
    "two halves of a node": (
        ONE + "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 --master_port=1 a.py &\n"
        "CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 --master_port=2 b.py &\n"
        "wait\n"
    ),
    "a server beside it": (
        ONE + "vllm serve m --tensor-parallel-size 2 &\ntorchrun --nproc_per_node=2 t.py\n"
    ),
    "Lightning": (EIGHT + "srun python train.py --devices 4 --num_nodes 2\n"),
    "mpirun": (EIGHT + "mpirun -np 8 --bind-to none python train.py\n"),
    "one node first": (
        TWO + "srun -N1 -n1 python prep.py\n"
        "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py\n"
    ),
    "python first": (TWO + "python prep.py\nsrun python train.py\n"),
    "torchrun on one node first": (
        TWO + "torchrun --nproc_per_node=4 prep.py\n"
        "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py\n"
    ),
    "a protected variable": (
        TWO + 'srun bash -c "accelerate launch --num_machines 2 --num_processes 8 '
        '--machine_rank \\$SLURM_NODEID --main_process_ip $H t.py"\n'
    ),
    "a command in a variable": (
        TWO + 'CMD="torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d '
        '--rdzv_endpoint=$H:1 t.py"\n'
        'srun bash -c "$CMD"\n'
    ),
    "a script that it writes": (
        TWO + 'cat > run.sh <<"EOF"\n'
        "torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID "
        "--master_addr=$H t.py\n"
        "EOF\n"
        "srun bash run.sh\n"
    ),
    "Pyxis": (
        TWO + "srun --container-image=x.sqsh --container-mounts=/a:/a torchrun --nnodes=2 "
        "--nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py\n"
    ),
    "Apptainer": (
        TWO + "srun apptainer exec --nv x.sif torchrun --nnodes=2 --nproc_per_node=4 "
        "--rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py\n"
    ),
    "a shell in Apptainer": (
        TWO + "srun apptainer exec --nv x.sif bash -c 'source env.sh; torchrun "
        "--nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID "
        "--nproc_per_node=$SLURM_GPUS_ON_NODE --master_addr=$H t.py'\n"
    ),
    "a task for each node": (
        EIGHT + "srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES "
        "--nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py\n"
    ),
    "an array of nodes": (
        "#!/bin/bash\n"
        "#SBATCH --array=0-3\n"
        "#SBATCH --nodes=1\n"
        "#SBATCH --gpus-per-node=8\n"
        "torchrun --nnodes=4 --node_rank=$SLURM_ARRAY_TASK_ID --nproc_per_node=8 "
        "--master_addr=$H t.py\n"
    ),
    "a rank as argument": (
        "#!/bin/bash\n"
        "#SBATCH --nodes=1\n"
        "#SBATCH --gpus-per-node=8\n"
        "torchrun --nnodes=4 --node_rank=$1 --nproc_per_node=8 --master_addr=$H t.py\n"
    ),
    "Ray": (
        TWO + "head=$(hostname)\n"
        "srun --nodes=1 --ntasks=1 -w $head ray start --head --block &\n"
        "srun --nodes=1 --ntasks=1 ray start --address=$head:6379 --block &\n"
        "python train.py\n"
    ),
    "submitit": (TWO + "python -m submitit_run --launcher slurm\n"),
    "JAX": (EIGHT + "srun python jax_train.py\n"),
    "JAX on each node": (TWO + "srun python jax_train.py\n"),
    "a subshell": (
        TWO + "( cd x && srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py )\n"
    ),
    "time": (
        TWO + "/usr/bin/time -v srun torchrun --nnodes=2 --nproc_per_node=4 "
        "--rdzv_backend=c10d --rdzv_endpoint=$H:1 t.py\n"
    ),
    "a retry": (
        TWO + "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py || scontrol requeue $SLURM_JOB_ID\n"
    ),
    "a pipe": (
        TWO + "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py 2>&1 | tee log\n"
    ),
    "a hostfile": (TWO + "deepspeed --hostfile=$HOSTFILE train.py\n"),
    "bound GPUs": (EIGHT + "srun --gpu-bind=map_gpu:0,1,2,3 python train.py\n"),
    "a range of nodes": (
        "#!/bin/bash\n"
        "#SBATCH --nodes=2-4\n"
        "#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --gpus-per-node=4\n"
        "srun torchrun --nnodes=2:4 --nproc_per_node=4 --rdzv_backend=c10d "
        "--rdzv_endpoint=$H:1 t.py\n"
    ),
    "a heterogeneous job": (
        "#!/bin/bash\n"
        "#SBATCH --nodes=1 --gpus-per-node=4\n"
        "#SBATCH hetjob\n"
        "#SBATCH --nodes=2\n"
        "srun --het-group=0 torchrun --nproc_per_node=4 t.py : --het-group=1 ./b\n"
    ),
    "uv": (
        TWO + "srun uv run torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d "
        "--rdzv-endpoint=$H:1 t.py\n"
    ),
    "uv alone": (ONE + "uv run python train.py\n"),
    "nohup": (ONE + "nohup torchrun --nproc_per_node=4 t.py > log 2>&1 &\nwait\n"),
    "options by variables": (
        TWO + "export PET_NNODES=$SLURM_NNODES PET_NPROC_PER_NODE=4 PET_RDZV_BACKEND=c10d "
        "PET_RDZV_ENDPOINT=$H:1\n"
        "srun torchrun t.py\n"
    ),
    "a rank by variable": (
        TWO + "srun bash -c 'export PET_NODE_RANK=$SLURM_NODEID; torchrun --nnodes=2 "
        "--nproc_per_node=4 --master_addr=$H t.py'\n"
    ),
    "a rank before the command": (
        TWO + "srun bash -c 'PET_NODE_RANK=$SLURM_NODEID torchrun --nnodes=2 "
        "--nproc_per_node=4 --master_addr=$H t.py'\n"
    ),
    "many lines": (
        TWO + "srun torchrun \\\n"
        '  --nnodes "$SLURM_NNODES" \\\n'
        "  --nproc_per_node 4 \\\n"
        '  --rdzv_id "$SLURM_JOB_ID" \\\n'
        "  --rdzv_backend c10d \\\n"
        '  --rdzv_endpoint "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head '
        '-n1):29500" \\\n'
        "  train.py\n"
    ),
    "two trainings": (
        TWO + "srun -N1 -n1 -w a torchrun --nproc_per_node=4 a.py &\n"
        "srun -N1 -n1 -w b torchrun --nproc_per_node=4 b.py &\n"
        "wait\n"
    ),
    "shards": (
        TWO + 'srun bash -c "torchrun --nproc_per_node=4 infer.py --shard \\$SLURM_PROCID --of 2"\n'
    ),
}
