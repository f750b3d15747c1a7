#!/bin/bash
#SBATCH --power=level
#SBATCH --gres=gpu:1

srun ./a
# expect: option-this-slurm-lacks@2 slurm=24.11
