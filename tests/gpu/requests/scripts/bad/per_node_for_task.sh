#!/bin/bash
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:1

srun python a.py
# expect: gpu-shared-by-tasks@3
