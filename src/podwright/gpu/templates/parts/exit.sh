# srun ends with the highest code of all tasks, and one that it ended because another had failed
# counts as 137. So the task that fails first writes its code down, and the job ends with it.
export FIRST_EXIT="$SLURM_SUBMIT_DIR/.first-exit-$SLURM_JOB_ID"
rm -f "$FIRST_EXIT"
task='"$@" || { code=$?; (set -C; echo "$code" >"$FIRST_EXIT") 2>/dev/null; exit "$code"; }'
job_code() { # what srun ended with
    if [ -s "$FIRST_EXIT" ]; then cat "$FIRST_EXIT"; else echo "$1"; fi
    rm -f "$FIRST_EXIT"
}
