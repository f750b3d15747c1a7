#!/bin/bash
#SBATCH --gres=gpu:2
#SBATCH --nodes=1
export CUDA_VISIBLE_DEVICES=2,3
python a.py
# expect: gpu-out-of-grant@4
