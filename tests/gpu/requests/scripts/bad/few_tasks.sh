#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks=2
#SBATCH --gpus-per-node=1

srun ./a
# expect: fewer-tasks-than-nodes@3
