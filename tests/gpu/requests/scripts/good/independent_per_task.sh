#!/bin/bash
#SBATCH --ntasks=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4

srun --cpus-per-task=4 sh -c 'python score.py --shard "$SLURM_PROCID"'
