"""The rules of one kind of hardware, as data, so that a new kind changes no other floor."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from podwright import plugins


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
            return tuple(1 << order for order in range(most.bit_length()))
        if self.trims:
            return tuple(range(1, most + 1))
        whole_machines = range(2 * per_machine, most + 1, per_machine)
        return (*range(1, min(per_machine, most) + 1), *whole_machines)

    def step(self, size: int, per_machine: int) -> int:
        """Return the distance, in devices, between places at which a part of `size` may begin."""
        if self.aligned:
            return size
        return 1 if size < per_machine else per_machine


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
_RULES = (ALIGNED_POWER_OF_TWO, MACHINE_SUBSET_OR_WHOLE_MACHINES, MACHINES_OF_A_SWITCH)


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
        allowed = self.partition_sizes_in_domain
        legal = self.block_rule.sizes(most, self.devices_per_machine)
        return tuple(size for size in legal if not allowed or size in allowed)


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


def gpu_family(name: str, per_machine: int, per_domain: int) -> Family:
    """Return the family of GPUs joined by NVLink.

    per_machine: GPUs in a machine. per_domain: the most GPUs in a link domain.
    """
    machines = per_domain // per_machine
    rule = MACHINES_OF_A_SWITCH if machines > 1 else MACHINE_SUBSET_OR_WHOLE_MACHINES
    return Family(
        name=name,
        device_noun="GPU",
        attachment=Attachment.HOST,
        block_rule=rule,
        devices_per_machine=per_machine,
        max_domain_devices=per_domain,
        partition_sizes_in_domain=(),
        gcd_sizes=(),
        replica_sizes=(),
        allocation_sizes_in_domain=tuple(per_machine * n for n in range(1, machines + 1)),
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
    kind = name.rstrip("0123456789")
    count = name.removeprefix(kind)
    if kind in ("gpu", "pool") and count and 0 < int(count) <= 64 and count[0] != "0":
        number = int(count)
        return gpu_family(name, number, number) if kind == "gpu" else pool_family(name, number)
    return FAMILIES.get(name) or plugins.load(plugins.FAMILIES, name, Family)


def family_names() -> tuple[str, ...]:
    """Return all family names, except `gpu2`, `pool16` and their like."""
    return (*FAMILIES, *plugins.names(plugins.FAMILIES))


def rule_name(value: object) -> str:
    """Return what a store keeps of a block rule; an encoder's hook. Raises NotImplementedError."""
    if isinstance(value, BlockRule):
        return value.name
    raise NotImplementedError(f"{type(value).__name__} is not kept in a store")


def rule_of(kind: type, value: object) -> BlockRule:
    """Return the block rule of that name; a decoder's hook.

    Raises ValueError where no family has the rule, as when the package that added it is gone.
    """
    for rule in _RULES:
        if kind is BlockRule and value == rule.name:
            return rule
    for name in plugins.names(plugins.FAMILIES):
        family = plugins.load(plugins.FAMILIES, name, Family)
        if kind is BlockRule and family is not None and value == family.block_rule.name:
            return family.block_rule
    raise ValueError(f"no family here has the block rule {value!r}: is its package installed?")
