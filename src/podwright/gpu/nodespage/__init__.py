"""The live page of GPU nodes under Slurm: the nodes, their GPUs by job, and the queue. It reads the
output of Slurm's commands and changes nothing."""

from podwright.gpu.nodespage._ask_nodes import Looker
from podwright.gpu.nodespage._nodes_front import NodesPage, serve

__all__ = ["Looker", "NodesPage", "serve"]
