#!/bin/bash
# Ray on Slurm: a Ray cluster over the job's nodes, for as long as one program runs.
#
#     sbatch ray.sh python program.py
#
#SBATCH --job-name=ray
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail
[ $# -gt 0 ] || set -- python program.py
@FABRIC@
@MEMORY@
@RAY@
