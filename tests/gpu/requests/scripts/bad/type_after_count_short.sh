#!/bin/bash
#SBATCH --gres=gpu:2:a100
#SBATCH --nodes=1

python a.py
# expect: gres-order@2
