"""Which devices a request gets. No I/O, no clock, no randomness."""

from importlib import import_module

from podwright.fabric import Cluster
from podwright.placement._index import Index
from podwright.placement._node_index import NodeIndex
from podwright.placement._placement_types import Block, Placement, Refusal, Request

__all__ = ["Block", "Index", "NodeIndex", "Placement", "Refusal", "Request", "index_of"]


def index_of(cluster: Cluster) -> Index | NodeIndex:
    """Return an index that follows the rules of the cluster's family."""
    module_name, _, class_name = cluster.family.block_rule.index.partition(":")
    index: Index | NodeIndex = getattr(import_module(module_name), class_name)(cluster)
    return index
