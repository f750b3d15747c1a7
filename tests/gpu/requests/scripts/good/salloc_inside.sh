#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:2

srun --ntasks=2 --gpus-per-task=1 --exact python pair.py
