#!/bin/bash
#SBATCH --nodes=4-2
#SBATCH --gres=gpu:1

srun ./a
# expect: bad-value@2
