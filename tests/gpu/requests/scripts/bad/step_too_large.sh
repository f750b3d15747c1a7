#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=2
srun --nodes=4 ./solver
# expect: step-beyond-job@4
