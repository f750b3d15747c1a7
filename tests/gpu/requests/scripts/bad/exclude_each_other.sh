#!/bin/bash
#SBATCH --gpus-per-task=1
#SBATCH --ntasks-per-gpu=1
#SBATCH --ntasks=4

srun ./a
# expect: refused@3
