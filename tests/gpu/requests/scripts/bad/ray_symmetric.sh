#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" \
    ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_NNODES" -- python rl.py
# expect: ray-symmetric-run@8
