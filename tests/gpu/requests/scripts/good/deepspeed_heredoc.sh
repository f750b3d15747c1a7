#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
cat > hosts.txt <<EOF
#SBATCH is not read here
MASTER_ADDR=localhost
EOF
srun sh -c 'deepspeed --no_ssh --node_rank "$SLURM_NODEID" train.py'
