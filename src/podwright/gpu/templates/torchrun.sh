#!/bin/bash
# Training over several nodes: one torchrun on each node, one process for each GPU.
# Ready for FSDP and DDP: init_process_group() finds all ranks by what torchrun sets.
#
#     sbatch torchrun.sh train.py --epochs 3
#
#SBATCH --job-name=train
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail
[ $# -gt 0 ] || set -- train.py
@FABRIC@
@MEMORY@
# Where the ranks meet. The node list is written short (gpu[01-04]); scontrol spells it out.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
# Slurm before 23.11 does not hand --cpus-per-task on to srun by itself.
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
threads=$((SLURM_CPUS_PER_TASK / SLURM_GPUS_ON_NODE))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))

@EXIT@
@TORCHRUN@
# srun starts one torchrun on each node. When one fails, the others are ended too.
code=0
srun --kill-on-bad-exit=1 bash -c "$task" task python -c "$ranks" \
    --nnodes="$SLURM_NNODES" --nproc-per-node="$SLURM_GPUS_ON_NODE" \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
    "$@" || code=$?
exit "$(job_code "$code")"
