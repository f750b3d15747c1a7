#!/bin/bash
# Training by Lightning: srun starts a task for each GPU, as Lightning's own plug-in for Slurm wants
# it. In the program: Trainer(accelerator="gpu", devices=@GPUS@, num_nodes=@NODES@, strategy="ddp").
# Ninety seconds before the time limit Slurm sends USR1; Lightning saves, and puts the job back into
# the queue, to go on from there.
#
#     sbatch lightning.sh train.py --epochs 3
#
#SBATCH --job-name=lightning
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@GPUS@
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS_PER_GPU@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --signal=SIGUSR1@90
#SBATCH --requeue
#SBATCH --open-mode=append
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
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"

@EXIT@
code=0
srun --kill-on-bad-exit=1 bash -c "$task" task python -u "$@" || code=$?
exit "$(job_code "$code")"
