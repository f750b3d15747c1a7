#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# One of four jobs, each of which starts one node of the launch.
torchrun --nnodes=4 --node_rank=3 --nproc_per_node=8 --master_addr=head --master_port="$1" train.py
