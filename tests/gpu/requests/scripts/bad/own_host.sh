#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --exclusive

srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d \
    --rdzv_endpoint=$(hostname):$((20000 + SLURM_JOB_ID % 20000)) train.py'
# expect: local-rendezvous@8
