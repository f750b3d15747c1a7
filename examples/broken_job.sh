#!/bin/bash
# A job script with common mistakes. Try it: podwright slurm lint examples/broken_job.sh
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --gpus=4
#SBATCH --time=08:00:00

export MASTER_ADDR=$(echo $SLURM_JOB_NODELIST | cut -d, -f1)
export MASTER_PORT=29500
torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$MASTER_ADDR train.py
