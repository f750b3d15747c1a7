#!/bin/bash
# Offline inference: the input is cut into shards, and each task of an array works on one, with a
# GPU of its own. A shard that is done stays done: submit again, and only the others run.
#
#     sbatch --array=0-63%16 inference.sh prompts.jsonl answers python score.py
#
# The program reads its shard from standard input and writes answers to standard output, a line
# for each line.
#
#SBATCH --job-name=inference
#SBATCH --array=0-15%8
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=@TYPE@1
#SBATCH --cpus-per-task=@CPUS_PER_GPU@
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --output=%x-%A_%a.out

set -euo pipefail
[ $# -gt 2 ] || { echo "usage: sbatch inference.sh INPUT FOLDER PROGRAM …" >&2; exit 2; }
@MEMORY@
input=$1 folder=$2
shift 2
shards=$SLURM_ARRAY_TASK_COUNT
shard=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))
out=$folder/part-$(printf %05d "$shard")-of-$(printf %05d "$shards")
mkdir -p "$folder"
if [ -e "$out" ]; then
    echo "$out is done"
    exit 0
fi
# Written beside it and then renamed, so that what is there is whole.
awk -v n="$shards" -v k="$shard" 'NR % n == (k + 1) % n' "$input" | "$@" >"$out.$SLURM_JOB_ID"
mv "$out.$SLURM_JOB_ID" "$out"
