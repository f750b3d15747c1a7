#!/bin/bash
#SBATCH --nodes=1
#SBATCH --mincores=4

python train.py
# expect: unknown-option@3
