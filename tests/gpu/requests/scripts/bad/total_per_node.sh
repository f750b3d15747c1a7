#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --ntasks-per-node=2
#SBATCH --nodes=2

mpirun -np 4 prog
# expect: gpus-counted-over-nodes@2
