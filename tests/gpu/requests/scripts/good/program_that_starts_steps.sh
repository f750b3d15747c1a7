#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
# the program itself starts its steps, by srun
python -u solve.py \
    cases=200 \
    steps.run_command="srun" \
    steps.launcher="slurm"
