#!/bin/bash
#SBATCH --gpus=4
#SBATCH --ntasks-per-gpu=2
#SBATCH --nodes=1

srun ./worker
