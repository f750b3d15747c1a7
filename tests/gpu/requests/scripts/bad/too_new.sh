#!/bin/bash
#SBATCH --nodes=4
#SBATCH --segment=2
#SBATCH --gpus-per-node=4

srun ./a
# expect: option-this-slurm-lacks@3 slurm=22.05
