#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=2
srun --gres=gpu:2 ./a
# expect: gpus-disagree@4 slurm=26.05
