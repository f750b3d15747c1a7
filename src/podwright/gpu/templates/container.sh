#!/bin/bash
# Training in a container through Pyxis and Enroot, which add --container-… to srun: torchrun is
# the image's, the programs are those of the folder that the job was submitted from.
# Does this Slurm have Pyxis? srun --help | grep container-image
#
#     sbatch container.sh train.py --epochs 3
#
#SBATCH --job-name=container
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
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"

@EXIT@
@TORCHRUN@
# Enroot passes the environment on, NCCL's settings among it, and the GPUs that Slurm granted. The
# first failing task's code is written outside of the container, so its folder is mounted too.
code=0
srun --kill-on-bad-exit=1 \
    --container-image="${IMAGE:-@IMAGE@}" \
    --container-mounts="$SLURM_SUBMIT_DIR:/workspace,$SLURM_SUBMIT_DIR" \
    --container-workdir=/workspace \
    bash -c "$task" task python -c "$ranks" \
    --nnodes="$SLURM_NNODES" --nproc-per-node="$SLURM_GPUS_ON_NODE" \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
    "$@" || code=$?
exit "$(job_code "$code")"
