# `ray symmetric-run` (Ray 2.49 and newer) does this in one line:
#     srun --nodes=N --ntasks=N ray symmetric-run --address HEAD:PORT --min-nodes N -- PROGRAM
# but srun was seen to end with an error though the program had succeeded (Ray 2.60): a worker waits
# a minute for the head that has gone, and then fails. So the cluster is held and ended here.
# One step holds the whole Ray cluster: the head on the first node, a worker on each other. Its
# tasks read the script's line: at the first word workers leave, and when the line closes, the
# head ends too, also when this script was killed.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export RAY_PORT=$((20000 + SLURM_JOB_ID % 20000))
export RAY_ADDRESS="$head:$RAY_PORT"
export RAY_TMPDIR="/tmp/ray-$SLURM_JOB_ID"
export RAY_USAGE_STATS_ENABLED=0
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
exec {line}> >(srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --ntasks-per-node=1 bash -c '
    own="--num-cpus=$SLURM_CPUS_PER_TASK --num-gpus=${SLURM_GPUS_ON_NODE:-0} --block"
    own="$own --node-ip-address=$(getent ahostsv4 "$(hostname)" | head -n 1 | cut -d" " -f1)"
    if [ "$SLURM_PROCID" -eq 0 ]; then
        ray start --head --port="$RAY_PORT" --temp-dir="$RAY_TMPDIR" --include-dashboard=false $own &
    else
        until ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do sleep 1; done
        ray start --address="$RAY_ADDRESS" $own &
    fi
    ray=$!
    read -r word || word=
    if [ "$SLURM_PROCID" -eq 0 ] && [ -n "$word" ]; then read -r word || true; fi
    kill -TERM "$ray" 2>/dev/null
    wait "$ray"
    rm -rf "$RAY_TMPDIR"
')
cluster=$!

# until_nodes AT_LEAST AT_MOST SECONDS: wait until so many nodes are in the cluster.
until_nodes() {
    python - "$@" <<'END'
import os, sys, time, ray
least, most, seconds = map(int, sys.argv[1:])
deadline = time.time() + seconds
while time.time() < deadline:
    try:
        ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="error")
        while time.time() < deadline:
            if least <= sum(node["Alive"] for node in ray.nodes()) <= most:
                sys.exit(0)
            time.sleep(0.5)
    except ConnectionError:
        time.sleep(1)
sys.exit(f"after {seconds} s there are not {least} nodes in the Ray cluster at {os.environ['RAY_ADDRESS']}")
END
}

# The program begins when all nodes are there. It runs here, on the first one, and its exit code
# is the job's.
code=0
until_nodes "$SLURM_NNODES" "$SLURM_NNODES" 300 && "$@" || code=$?

echo leave >&"$line"
until_nodes 0 1 30 || true
exec {line}>&-
wait "$cluster" || true
exit "$code"
