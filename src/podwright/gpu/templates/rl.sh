#!/bin/bash
# RL post-training over Ray: the trainer's ranks and the engines that generate are Ray's actors,
# placed by the library's own placement groups.
#
#     sbatch rl.sh python train_rl.py trainer.nnodes=@NODES@ trainer.n_gpus_per_node=@GPUS@
#
#SBATCH --job-name=rl
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=@TYPE@@GPUS@
#SBATCH --cpus-per-task=@CPUS@
#SBATCH --exclusive
@HEAD@
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail
[ $# -gt 0 ] || set -- python train_rl.py
@FABRIC@
@MEMORY@
# Trainer and engines hand weights to each other inside a node: each actor sees all GPUs of its
# node and takes its own by number, so that CUDA can open its neighbours' memory.
export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1
@RAY@
