#!/bin/bash
#SBATCH --ntask-per-node=4
#SBATCH --gres=gpu:4

srun ./a
# expect: unknown-option@2
