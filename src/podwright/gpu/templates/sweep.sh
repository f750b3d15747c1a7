#!/bin/bash
# A sweep: one task of an array for each line of a file, each on a GPU of its own.
# A line holds the arguments of one run. At most 8 run at once: the number after %.
#
#     sbatch --array=0-$(($(wc -l < sweep.txt) - 1))%8 sweep.sh sweep.txt python train.py
#
#SBATCH --job-name=sweep
#SBATCH --array=0-15%8
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=@TYPE@1
#SBATCH --cpus-per-task=@CPUS_PER_GPU@
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --output=%x-%A_%a.out

set -euo pipefail
[ $# -gt 1 ] || { echo "usage: sbatch sweep.sh FILE PROGRAM [ARGUMENT …]" >&2; exit 2; }
@MEMORY@
file=$1
shift
line=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$file")
if [ -z "$line" ]; then
    echo "$file has no line $((SLURM_ARRAY_TASK_ID + 1)): nothing to do"
    exit 0
fi
read -ra arguments <<<"$line"
echo "run $SLURM_ARRAY_TASK_ID: $* ${arguments[*]}"
"$@" "${arguments[@]}"
