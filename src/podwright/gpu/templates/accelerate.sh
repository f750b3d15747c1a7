#!/bin/bash
# Training over several nodes by Hugging Face Accelerate: one `accelerate launch` on each node, one
# process for each GPU. What `accelerate config` wrote (FSDP, DeepSpeed, precision) is used; how
# many nodes and processes there are comes from Slurm.
#
#     sbatch accelerate.sh train.py --epochs 3
#
#SBATCH --job-name=accelerate
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
# Where the ranks meet. The node list is written short (gpu[01-04]); scontrol spells it out.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
# Slurm before 23.11 does not hand --cpus-per-task on to srun by itself.
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
threads=$((SLURM_CPUS_PER_TASK / SLURM_GPUS_ON_NODE))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))

@EXIT@
# accelerate ends with 1, whatever its ranks ended with: this ends as the one that failed first.
# The number of the node differs from task to task, so it is asked for here and not above.
ranks='
import os, sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from accelerate.commands.accelerate_cli import main
sys.argv[1:1] = ["launch", "--machine_rank", os.environ["SLURM_NODEID"]]
try:
    main()
except ChildFailedError as error:
    print(error, file=sys.stderr)
    code = error.get_first_failure()[1].exitcode
    sys.exit(code if code > 0 else 128 - code)
'
code=0
srun --kill-on-bad-exit=1 bash -c "$task" task python -c "$ranks" \
    --num_machines "$SLURM_NNODES" --num_processes $((SLURM_NNODES * SLURM_GPUS_ON_NODE)) \
    --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" --rdzv_backend c10d \
    "$@" || code=$?
exit "$(job_code "$code")"
