#!/bin/bash
#SBATCH --gpus-per-socket=1
#SBATCH --nodes=1

srun ./a
# expect: refused@2
