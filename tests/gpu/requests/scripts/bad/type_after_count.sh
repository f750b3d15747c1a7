#!/bin/bash
#SBATCH --gres=gpu:1:tesla:v100
#SBATCH --ntasks=1

python a.py
# expect: gres-order@2
