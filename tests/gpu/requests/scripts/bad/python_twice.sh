#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc_per_node=4 python train.py
# expect: python-behind-launcher@4
