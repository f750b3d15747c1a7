"""The rules of one kind of hardware, as data, so that a new kind changes no other floor."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from podwright.ground import plugins


class Attachment(enum.Enum):
    """How devices are attached to hosts."""

    FABRIC = "fabric"  #: any host reaches any device over a network
    HOST = "host"  #: devices sit inside a host
    #: devices sit in a chassis, and a fabric attaches each to one host at a time, of any of its
    #: hosts
    POOL = "pool"


class BlockRule:
    """Which sets of devices of one link domain may form a partition: how many devices, and where.

    There is one rule of each name, and stores keep that name (`rule_name`, `rule_of`). A new rule
    is a subclass with `sizes` of its own, and with an index that places by it.

    index: the class of the index, as `module:Class`; it has the methods of
    `podwright.placement.NodeIndex`. aligned: a part of `size` devices begins at a multiple of its
    size; otherwise it begins at any device of a machine, or with a machine. trims: a part that
    spans several machines of a link domain may take only some devices of the last one.
    """

    __slots__ = ("aligned", "index", "name", "trims")

    def __init__(self, name: str, index: str, aligned: bool = False, trims: bool = False) -> None:
        self.name, self.index, self.aligned, self.trims = name, index, aligned, trims

    def __repr__(self) -> str:
        return f"BlockRule({self.name!r})"

    def sizes(self, most: int, per_machine: int) -> tuple[int, ...]:
        """Return the legal numbers of devices of a partition, up to `most`, in ascending order."""
        if self.aligned:
            return tuple(1 << exponent for exponent in range(most.bit_length()))
        if self.trims:
            return tuple(range(1, most + 1))
        whole_machines = range(2 * per_machine, most + 1, per_machine)
        return (*range(1, min(per_machine, most) + 1), *whole_machines)

    def step(self, part_size: int, per_machine: int) -> int:
        """Return the distance, in devices, between places where a part of `part_size` may begin."""
        if self.aligned:
            return part_size
        return 1 if part_size < per_machine else per_machine


#: A power of two, at an offset that is a multiple of it (IPU-Links).
ALIGNED_POWER_OF_TWO = BlockRule("aligned-power-of-two", "podwright.placement:Index", aligned=True)
#: Any devices of one machine, or whole machines (NVLink).
MACHINE_SUBSET_OR_WHOLE_MACHINES = BlockRule(
    "machine-subset-or-whole-machines", "podwright.placement:NodeIndex"
)
#: Any devices of one machine, or whole machines and a part of one more, where a switch joins all
#: devices of several machines in the same way.
MACHINES_OF_A_SWITCH = BlockRule(
    "machines-of-a-switch", "podwright.placement:NodeIndex", trims=True
)
_BLOCK_RULES = (ALIGNED_POWER_OF_TWO, MACHINE_SUBSET_OR_WHOLE_MACHINES, MACHINES_OF_A_SWITCH)


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

    def sizes(self, most: int) -> tuple[int, ...]:
        """Return the legal sizes of a partition in a link domain of `most` devices, ascending."""
        allowed_sizes = self.partition_sizes_in_domain
        legal_sizes = self.block_rule.sizes(most, self.devices_per_machine)
        return tuple(size for size in legal_sizes if not allowed_sizes or size in allowed_sizes)


#: V-IPU guide, terminology (seed 003). 32 is accepted as well, since PopRun's own table shows it
#: (seed 001).
IPU = Family(
    name="ipu",
    device_noun="IPU",
    attachment=Attachment.FABRIC,
    block_rule=ALIGNED_POWER_OF_TWO,
    devices_per_machine=4,
    max_domain_devices=64,
    partition_sizes_in_domain=(1, 2, 4, 8, 16, 32, 64),
    gcd_sizes=(1, 2, 4, 8, 16, 32, 64),
    replica_sizes=(1, 2, 4, 8, 16, 32, 64),
    allocation_sizes_in_domain=(4, 8, 16, 32, 64),
    reconfigurable_max=64,
)


def gpu_family(name: str, devices_per_machine: int, max_domain_devices: int) -> Family:
    """Return the family of GPUs joined by NVLink.

    devices_per_machine: GPUs in a machine. max_domain_devices: the most GPUs in a link domain.
    """
    machines_per_domain = max_domain_devices // devices_per_machine
    block_rule = (
        MACHINES_OF_A_SWITCH if machines_per_domain > 1 else MACHINE_SUBSET_OR_WHOLE_MACHINES
    )
    return Family(
        name=name,
        device_noun="GPU",
        attachment=Attachment.HOST,
        block_rule=block_rule,
        devices_per_machine=devices_per_machine,
        max_domain_devices=max_domain_devices,
        partition_sizes_in_domain=(),
        gcd_sizes=(),
        replica_sizes=(),
        allocation_sizes_in_domain=tuple(
            devices_per_machine * count for count in range(1, machines_per_domain + 1)
        ),
        reconfigurable_max=0,
    )


#: A node of 8 GPUs on switch chips. Its link domain is the node; a network joins several nodes.
HGX8 = gpu_family("hgx8", 8, 8)
#: A rack of 18 trays of 4 GPUs, all joined by NVLink.
NVL72 = gpu_family("nvl72", 4, 72)

#: A machine with one GPU. `gpu2` and so on are machines with more; each machine is a link domain.
GPU1 = gpu_family("gpu1", 1, 1)

#: Up to 8 devices are composed to each host over a switched fabric: any number, each device
#: attached to one host at a time. A link domain consists of the hosts that one fabric manager
#: serves.
COMPOSABLE = replace(gpu_family("composable", 8, 512), device_noun="device")


def pool_family(name: str, per_chassis: int) -> Family:
    """Return the family of a pool: devices that a fabric attaches to any of its hosts.

    A machine is a chassis, and so is a link domain. per_chassis: devices in it.
    """
    family = gpu_family(name, per_chassis, per_chassis)
    return replace(family, device_noun="device", attachment=Attachment.POOL)


FAMILIES: dict[str, Family] = {
    family.name: family for family in (IPU, HGX8, NVL72, GPU1, COMPOSABLE)
}


def family_named(name: str) -> Family | None:
    """Return the family of that name, of Podwright's or of another package; else None."""
    name_prefix = name.rstrip("0123456789")
    count_text = name.removeprefix(name_prefix)
    if (
        name_prefix in ("gpu", "pool")
        and count_text
        and 0 < int(count_text) <= 64
        and count_text[0] != "0"
    ):
        device_count = int(count_text)
        return (
            gpu_family(name, device_count, device_count)
            if name_prefix == "gpu"
            else pool_family(name, device_count)
        )
    return FAMILIES.get(name) or plugins.load(plugins.FAMILIES, name, Family)


def family_names() -> tuple[str, ...]:
    """Return all family names, except `gpu2`, `pool16` and their like."""
    return (*FAMILIES, *plugins.names(plugins.FAMILIES))


def rule_name(value: object) -> str:
    """Return what a store keeps of a block rule; an encoder's hook. Raises NotImplementedError."""
    if isinstance(value, BlockRule):
        return value.name
    raise NotImplementedError(f"{type(value).__name__} is not kept in a store")


def rule_of(wanted_type: type, stored_name: object) -> BlockRule:
    """Return the block rule of that name; a decoder's hook.

    Raises ValueError where no family has the rule, as when the package that added it is gone.
    """
    for rule in _BLOCK_RULES:
        if wanted_type is BlockRule and stored_name == rule.name:
            return rule
    for family_name in plugins.names(plugins.FAMILIES):
        family = plugins.load(plugins.FAMILIES, family_name, Family)
        if (
            wanted_type is BlockRule
            and family is not None
            and stored_name == family.block_rule.name
        ):
            return family.block_rule
    raise ValueError(
        f"no family here has the block rule {stored_name!r}: is its package installed?"
    )
