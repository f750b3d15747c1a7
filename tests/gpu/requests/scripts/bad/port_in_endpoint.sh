#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --nproc_per_node=4 --rdzv_endpoint=localhost:29400 train.py
# expect: fixed-master-port@4
