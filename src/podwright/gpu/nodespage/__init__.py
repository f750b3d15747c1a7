"""The live page of GPU nodes under Slurm: the nodes, their GPUs by job, and the queue. It reads the
output of Slurm's commands and changes nothing."""

from podwright.gpu.nodespage._nodes_page_server import NodesPage, serve
from podwright.gpu.nodespage._query_slurm import Looker

__all__ = ["Looker", "NodesPage", "serve"]
