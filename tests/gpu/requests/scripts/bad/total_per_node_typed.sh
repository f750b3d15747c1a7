#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=h100:8

srun ./prog
# expect: gpus-counted-over-nodes@4
