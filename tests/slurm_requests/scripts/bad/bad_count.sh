#!/bin/bash
#SBATCH --gpus-per-node=four

srun ./a
# expect: bad-value@2
