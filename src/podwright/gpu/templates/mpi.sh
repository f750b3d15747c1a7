#!/bin/bash
# An MPI program over several nodes, a rank for each GPU. srun starts the ranks by PMIx, so that
# Slurm itself binds and ends them; mpirun is not needed.
#
#     sbatch mpi.sh ./solver input.nml
#
#SBATCH --job-name=mpi
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@GPUS@
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS_PER_GPU@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail
[ $# -gt 0 ] || set -- ./solver
@FABRIC@
@MEMORY@
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"

@EXIT@
# Every rank sees all GPUs of its node and takes number SLURM_LOCALID, as most MPI codes do by
# themselves: with --gpus-per-task CUDA could not open the neighbours' memory.
code=0
srun --mpi=pmix --kill-on-bad-exit=1 bash -c "$task" task "$@" || code=$?
exit "$(job_code "$code")"
