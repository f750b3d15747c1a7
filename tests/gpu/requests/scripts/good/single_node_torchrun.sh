#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32

torchrun --standalone --nproc_per_node=4 train.py
