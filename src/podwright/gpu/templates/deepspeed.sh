#!/bin/bash
# Training by DeepSpeed: srun starts a task for each GPU, so that neither the deepspeed launcher nor
# ssh between nodes is needed; deepspeed.init_distributed() finds the ranks by the environment.
#
#     sbatch deepspeed.sh train.py --deepspeed_config ds.json
#
#SBATCH --job-name=deepspeed
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@GPUS@
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS_PER_GPU@
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
export WORLD_SIZE="$SLURM_NTASKS"
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"

@EXIT@
# Each task sees all GPUs of its node and takes number LOCAL_RANK. The ranks are known to the tasks
# alone, so they are set there.
rank='export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE'
code=0
srun --kill-on-bad-exit=1 bash -c "$rank; $task" task python -u "$@" || code=$?
exit "$(job_code "$code")"
