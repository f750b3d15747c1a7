#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --exclusive

srun deepspeed --num_nodes="$SLURM_NNODES" --num_gpus=4 train.py --deepspeed ds.json
# expect: separate-trainings@7
