#!/bin/bash
# Fine-tuning that outlives its time limit: five minutes before the end the program is asked to
# save, and the job goes back to the queue, to go on from there.
#
#     sbatch finetune.sh finetune.py --model some-model
#
# The program saves into $CHECKPOINT_DIR when it gets SIGTERM, and starts from what lies there.
# torchrun gives it 30 seconds for that: a large model is saved at intervals as well.
#
#SBATCH --job-name=finetune
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

set -euo pipefail
[ $# -gt 0 ] || set -- finetune.py
@FABRIC@
@MEMORY@
# On a file system that all nodes have. The same after a requeue: it has the job's number.
export CHECKPOINT_DIR="${CHECKPOINT_DIR:-$PWD/checkpoints-$SLURM_JOB_ID}"
mkdir -p "$CHECKPOINT_DIR"

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"

@EXIT@
@TORCHRUN@
srun --kill-on-bad-exit=1 bash -c "$task" task python -c "$ranks" \
    --nnodes="$SLURM_NNODES" --nproc-per-node="$SLURM_GPUS_ON_NODE" \
    --rdzv-id="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" --rdzv-backend=c10d \
    --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
    "$@" &
step=$!

# scancel with a signal reaches the processes of the steps, and not this script.
again=no
trap 'again=yes; scancel --quiet --signal=TERM "$SLURM_JOB_ID"' USR1
code=0
wait "$step" || code=$?
# A trap ends the first wait; the step is still saving.
while kill -0 "$step" 2>/dev/null; do
    code=0
    wait "$step" || code=$?
done
if [ "$again" = yes ] && [ "$code" -ne 0 ]; then
    echo "saved; the job goes back to the queue"
    scontrol requeue "$SLURM_JOB_ID"
    sleep 60
fi
exit "$(job_code "$code")"
