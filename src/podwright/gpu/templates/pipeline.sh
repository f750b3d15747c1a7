#!/bin/bash
# A pipeline: each script waits in the queue until the one before it has succeeded. When one
# fails, Slurm takes those after it away, instead of keeping them for ever.
#
#     bash pipeline.sh prepare.sh train.sh evaluate.sh
#
# Run it where sbatch is. It ends at once and prints the jobs' numbers.

set -euo pipefail
[ $# -gt 0 ] || { echo "usage: pipeline.sh SCRIPT …" >&2; exit 2; }
before=
for script in "$@"; do
    wait_for=()
    [ -z "$before" ] || wait_for=(--dependency="afterok:$before" --kill-on-invalid-dep=yes)
    before=$(sbatch --parsable @PARTITION@"${wait_for[@]}" "$script")
    # On a federation --parsable says JOB;CLUSTER.
    before=${before%%;*}
    echo "$before $script"
done
