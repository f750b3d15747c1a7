"""The page of GPU nodes under Slurm: nodes, GPUs by job, and what waits, live. It reads what
Slurm's commands say, and changes nothing."""

from podwright.slurm.gpus.nodespage._look import Looker
from podwright.slurm.gpus.nodespage._nodes_front import NodesPage, serve

__all__ = ["Looker", "NodesPage", "serve"]
