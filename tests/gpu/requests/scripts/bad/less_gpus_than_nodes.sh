#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus=2

srun ./a
# expect: refused@3
