"""Rings of four devices in a machine, which are given out whole: nobody gets half a ring."""

from podwright.fabric import Attachment, BlockRule, Cluster, Family
from podwright.placement import NodeIndex, Placement, Refusal, Request

RING_SIZE = 4


class WholeRings(NodeIndex):
    """Places whole machines alone. Everything else is as for machines of GPUs."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.ring = cluster.family.devices_per_machine

    def find(self, request: Request) -> Placement | None:
        """Where the request would go, or None."""
        return None if request.size % self.ring else super().find(request)

    def plan(self, request: Request) -> Placement | Refusal:
        """Where the request would go, or why nowhere."""
        if left := request.size % self.ring:
            below = request.size - left
            sizes = (*([below] if below else []), below + self.ring)
            rule = f"rings are given out whole, {self.ring} devices each"
            return Refusal(True, rule, self.free(request.allocation), nearest_sizes=sizes)
        return super().plan(request)


class WholeMachines(BlockRule):
    """4, 8, 12 ... devices: sizes that are no powers of two, too."""

    def sizes(self, most: int, per_machine: int) -> tuple[int, ...]:
        """How many devices a partition may have, in ascending order."""
        return tuple(range(per_machine, most + 1, per_machine))


RING = Family(
    name="acme-ring",
    device_noun="device",
    attachment=Attachment.FABRIC,
    block_rule=WholeMachines("whole-machines", "acme_pods.family:WholeRings", aligned=True),
    devices_per_machine=RING_SIZE,
    max_domain_devices=8 * RING_SIZE,
    partition_sizes_in_domain=(),
    gcd_sizes=(),
    replica_sizes=(),
    allocation_sizes_in_domain=tuple(RING_SIZE * machines for machines in range(1, 9)),
    reconfigurable_max=0,
)
