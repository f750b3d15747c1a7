#!/bin/bash
#SBATCH --nodes=1

module load cuda
#SBATCH --gres=gpu:4
srun ./a
# expect: late-directive@5
