#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:1

nvidia-cuda-mps-control -d
srun ./small_model
echo quit | nvidia-cuda-mps-control
