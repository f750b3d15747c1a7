#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
srun ./a
# expect: cpus-not-passed-on@5 slurm=22.05
