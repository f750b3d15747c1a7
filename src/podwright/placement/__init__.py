"""Which devices a request gets. No I/O, no clock, no randomness."""

from podwright.fabric import BlockRule, Cluster
from podwright.placement._index import Index
from podwright.placement._node_index import NodeIndex
from podwright.placement._values import Block, Placement, Refusal, Request

__all__ = ["Block", "Index", "NodeIndex", "Placement", "Refusal", "Request", "index_of"]


def index_of(cluster: Cluster) -> Index | NodeIndex:
    """An index that follows the rules of the cluster's family."""
    rule = cluster.family.block_rule
    return (
        NodeIndex(cluster) if rule is BlockRule.MACHINE_SUBSET_OR_WHOLE_MACHINES else Index(cluster)
    )
