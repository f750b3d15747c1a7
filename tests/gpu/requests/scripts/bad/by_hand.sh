#!/bin/bash
#SBATCH --gres=gpu:2
#SBATCH --nodes=1
export CUDA_VISIBLE_DEVICES=0,1
python a.py
# expect: overrides-grant@4
