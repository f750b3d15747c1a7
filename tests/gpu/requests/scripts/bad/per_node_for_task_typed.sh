#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --gres=gpu:a100:1

srun python a.py
# expect: gpu-shared-by-tasks@4
