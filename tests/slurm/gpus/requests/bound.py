"""Requests where tasks are bound to cores, and what real Slurm did with them.

On nodes of two sockets with one core and two GPUs each: more cores than a small machine has, it
cannot bind to. Each row: command, options, outcome on 22.05.8, outcome on 24.11.5.
"""

from __future__ import annotations

from podwright.slurm.gpus.requests import NodeHardware

BOUND = NodeHardware(
    nodes=4,
    sockets=2,
    cores_per_socket=1,
    gpus=4,
    kinds=("a100",),
    confined=False,
    affinity=True,
)

SEEN = (
    (
        "srun",
        "--gpus=4 --ntasks=2 --nodes=1 --gpu-bind=closest",
        "1 nodes: 0[0,1] 0[2,3]",
        "1 nodes: 0[0,1] 0[2,3]",
    ),
    (
        "salloc",
        "--gres=gpu:2 --ntasks=2 --nodes=1 --gpu-bind=closest",
        "1 nodes: 0[0] 0[2]",
        "1 nodes: 0[0] 0[2]",
    ),
    (
        "sbatch",
        "--gpus=3 --ntasks=2 --nodes=1 --gpu-bind=closest",
        "1 nodes: 0[0,1] 0[2]",
        "1 nodes: 0[0,1] 0[2]",
    ),
    (
        "srun",
        "--gpus=1 --ntasks=2 --nodes=1 --gpu-bind=closest",
        "1 nodes: 0[0] 0[0]",
        "1 nodes: 0[0] 0[0]",
    ),
    (
        "salloc",
        "--gpus-per-node=4 --nodes=2 --ntasks-per-node=2 --gpu-bind=closest",
        "2 nodes: 0[0,1] 0[2,3] 1[0,1] 1[2,3]",
        "2 nodes: 0[0,1] 0[2,3] 1[0,1] 1[2,3]",
    ),
    (
        "sbatch",
        "--gres=gpu:4 --ntasks=1 --cpus-per-task=2 --gpu-bind=closest",
        "1 nodes: 0[0,1,2,3]",
        "1 nodes: 0[0,1,2,3]",
    ),
    (
        "srun",
        "--gres=gpu:4 --ntasks=2 --nodes=1",
        "1 nodes: 0[0,1,2,3] 0[0,1,2,3]",
        "1 nodes: 0[0,1,2,3] 0[0,1,2,3]",
    ),
    (
        "salloc",
        "--gres=gpu:4 --ntasks=2 --nodes=1 --gpu-bind=single:1",
        "1 nodes: 0[0] 0[3]",
        "1 nodes: 0[0] 0[2]",
    ),
    (
        "sbatch",
        "--gres=gpu:4 --ntasks=2 --nodes=1 --gpu-bind=single:2",
        "1 nodes: 0[0] 0[2]",
        "1 nodes: 0[0] 0[2]",
    ),
    (
        "srun",
        "--gres=gpu:3 --ntasks=2 --nodes=1 --gpu-bind=per_task:1",
        "1 nodes: 0[0] 0[1]",
        "1 nodes: 0[0] 0[2]",
    ),
    (
        "salloc",
        "--gres=gpu:3 --ntasks=2 --nodes=1 --gpu-bind=per_task:2",
        "1 nodes: 0[0,1] 0[2]",
        "1 nodes: 0[0,1] 0[2]",
    ),
    (
        "sbatch",
        "--gres=gpu:4 --ntasks=2 --nodes=1 --gpu-bind=map_gpu:3,0",
        "1 nodes: 0[3] 0[0]",
        "1 nodes: 0[3] 0[0]",
    ),
    (
        "srun",
        "--gpus-per-task=2 --ntasks=2 --nodes=1",
        "1 nodes: 0[0,1] 0[2,3]",
        "1 nodes: 0[0,1] 0[2,3]",
    ),
    (
        "salloc",
        "--gpus-per-task=1 --ntasks=4",
        "2 nodes: 0[0] 0[2] 1[0] 1[2]",
        "2 nodes: 0[0] 0[2] 1[0] 1[2]",
    ),
    ("sbatch", "--ntasks-per-gpu=1 --gpus=2", "1 nodes: 0[0] 0[0]", "1 nodes: 0[0] 0[2]"),
)
