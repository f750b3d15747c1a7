#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --exclusive

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_LOCALID \
    --master_addr=$MASTER_ADDR train.py'
# expect: same-rank@8
