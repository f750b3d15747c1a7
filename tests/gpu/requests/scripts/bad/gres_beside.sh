#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=2
#SBATCH --gres=gpu:2
srun ./a
# expect: gpus-disagree@4 slurm=26.05
