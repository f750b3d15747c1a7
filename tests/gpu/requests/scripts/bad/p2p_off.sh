#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
export NCCL_P2P_DISABLE=1
torchrun --standalone --nproc_per_node=8 t.py
# expect: nccl-hampered@4
