"""The rules of one kind of hardware, as data, so that a new kind changes no other floor."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Attachment(enum.Enum):
    """How devices meet hosts."""

    FABRIC = "fabric"  #: any host reaches any device over a network
    HOST = "host"  #: devices sit inside a host


class BlockRule(enum.Enum):
    """Which sets of devices of one link domain may form a partition."""

    #: A power of two, at an offset that is a multiple of it (IPU-Links).
    ALIGNED_POWER_OF_TWO = "aligned-power-of-two"
    #: Any devices of one machine, or whole machines (NVLink).
    MACHINE_SUBSET_OR_WHOLE_MACHINES = "machine-subset-or-whole-machines"


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of hardware.

    Sizes are counts of devices. `partition_sizes_in_domain`, `gcd_sizes` and `replica_sizes`
    list what is legal; an empty tuple sets no limit beyond the block rule.
    """

    name: str
    device_noun: str
    attachment: Attachment
    block_rule: BlockRule
    devices_per_machine: int
    max_domain_devices: int
    partition_sizes_in_domain: tuple[int, ...]
    gcd_sizes: tuple[int, ...]
    replica_sizes: tuple[int, ...]
    allocation_sizes_in_domain: tuple[int, ...]
    reconfigurable_max: int


#: V-IPU guide, terminology (seed 003); 32 is accepted as PopRun's own table shows it (seed 001).
IPU = Family(
    name="ipu",
    device_noun="IPU",
    attachment=Attachment.FABRIC,
    block_rule=BlockRule.ALIGNED_POWER_OF_TWO,
    devices_per_machine=4,
    max_domain_devices=64,
    partition_sizes_in_domain=(1, 2, 4, 8, 16, 32, 64),
    gcd_sizes=(1, 2, 4, 8, 16, 32, 64),
    replica_sizes=(1, 2, 4, 8, 16, 32, 64),
    allocation_sizes_in_domain=(4, 8, 16, 32, 64),
    reconfigurable_max=64,
)

FAMILIES: dict[str, Family] = {IPU.name: IPU}
