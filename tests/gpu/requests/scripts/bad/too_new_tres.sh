#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --tres-per-task=gres/gpu:1

srun ./a
# expect: option-this-slurm-lacks@3 slurm=22.05
