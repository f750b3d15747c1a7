#!/bin/bash
#SBATCH --nodes=1
#SBATCH --share

python train.py
# expect: unknown-option@3
