#!/bin/bash
#SBATCH --gpus=5
#SBATCH --gpus-per-node=2

srun ./a
# expect: refused@2
