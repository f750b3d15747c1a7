#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc_per_node=8 t.py
# expect: more-processes-than-gpus@4
