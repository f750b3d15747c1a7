#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-n=2
#SBATCH --time=5

srun ./app
