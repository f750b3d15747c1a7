#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
mpirun -np 8 ./solver
# expect: more-ranks-than-tasks@5
