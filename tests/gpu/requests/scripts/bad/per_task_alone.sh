#!/bin/bash
#SBATCH --gpus-per-task=1

srun ./a
# expect: refused@2
