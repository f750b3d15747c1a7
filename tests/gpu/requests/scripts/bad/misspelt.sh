#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-noed=4

srun ./a
# expect: unknown-option@3
