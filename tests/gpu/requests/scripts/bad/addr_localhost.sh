#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive

export MASTER_ADDR=localhost
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
srun torchrun --nnodes="$SLURM_NNODES" --nproc_per_node=8 \
    --rdzv_backend=c10d --rdzv_endpoint="$MASTER_ADDR:$MASTER_PORT" train.py
# expect: master-addr@7
