#!/bin/bash
#SBATCH --nodes=1
#SBATCH --workdir=/scratch/run

python train.py
# expect: unknown-option@3
