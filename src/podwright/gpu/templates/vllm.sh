#!/bin/bash
# Offline inference by vLLM: the input is cut into shards, and each task of an array answers one
# with all GPUs of a node (tensor parallel). A shard that is done stays done: submit again, and only
# the others run.
#
#     sbatch --array=0-7%4 vllm.sh requests.jsonl answers some/model
#
# A line of the input is one request in OpenAI's batch format; so is a line of the answers.
#
#SBATCH --job-name=vllm
#SBATCH --array=0-3%2
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --output=%x-%A_%a.out

set -euo pipefail
[ $# -gt 2 ] || { echo "usage: sbatch vllm.sh INPUT FOLDER MODEL [OPTION …]" >&2; exit 2; }
@MEMORY@
input=$1 folder=$2 model=$3
shift 3
shards=$SLURM_ARRAY_TASK_COUNT
shard=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))
out=$folder/part-$(printf %05d "$shard")-of-$(printf %05d "$shards")
mkdir -p "$folder"
if [ -e "$out" ]; then
    echo "$out is done"
    exit 0
fi
# Written beside it and then renamed, so that what is there is whole.
part=$out.$SLURM_JOB_ID
trap 'rm -f "$part.in" "$part"' EXIT
awk -v n="$shards" -v k="$shard" 'NR % n == (k + 1) % n' "$input" >"$part.in"
vllm run-batch --input-file "$part.in" --output-file "$part" --model "$model" \
    --tensor-parallel-size "$SLURM_GPUS_ON_NODE" "$@"
mv "$part" "$out"
