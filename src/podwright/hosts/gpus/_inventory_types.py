"""The hardware of a machine with GPUs: the same values for all vendors, one JSON for all readers.

Slurm's configuration, placement and the check of a task's binding are made from these values, on
other machines than the one where they were read. So nothing in them is a handle, and lists of
processors are texts such as `0-15,32-47`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import msgspec

#: Paths between two devices, nearest first, as `nvidia-smi topo` names them: itself, one PCIe
#: switch, several, the same PCIe root, the same NUMA node, another one.
PATHS = ("X", "PIX", "PXB", "PHB", "NODE", "SYS")


class Slice(msgspec.Struct, frozen=True):
    """A part of a GPU that acts as a GPU (NVIDIA's MIG).

    memory: bytes. files: those that open it. number: of its GPU instance, as a `Holder` names it;
    -1 where it is not known.
    """

    uuid: str
    profile: str
    memory: int
    files: tuple[str, ...] = ()
    number: int = -1


class RackPlace(msgspec.Struct, frozen=True):
    """The place of a GPU of an NVLink rack, as its own driver reports it.

    guid: its name in the rack's fabric, `0x` and sixteen digits. chassis: the serial number. slot,
    tray: -1 where not known.
    """

    guid: str
    chassis: str = ""
    slot: int = -1
    tray: int = -1


class Gpu(msgspec.Struct, frozen=True):
    """One GPU.

    index: its place by PCI address, as CUDA counts with CUDA_DEVICE_ORDER=PCI_BUS_ID. type: what
    Slurm should call it, such as h100. bus: PCI address, `0000:1b:00.0`. memory: bytes. node: NUMA
    node, -1 where not known. cpus: the hardware threads near to it. cores: the same, counted by
    cores, socket after socket, as Slurm counts. files: what a process must open.

    links: for each other GPU, by its index, the number of direct links (NVLink, XGMI), including
    those through switches; -1 for itself. paths: for each other GPU, the path over PCIe, one of
    PATHS. fabric: equal for GPUs that reach each other by NVLink across machines; empty where none
    do. mig: `on`, `off`, or empty where the GPU cannot be cut. module: its place on the board, from
    1; -1 where not known.

    profile: of a part of a GPU that is a device of its own, such as `1g.10gb` (`divided`) or
    `cpx`. whole: the UUID of the GPU that it is a part of, whose reset resets all parts; empty for
    a whole GPU. shared: files that it opens and that others open too. firmware: its VBIOS; empty
    where not known. place: in a rack; None outside one.
    """

    index: int
    vendor: str
    uuid: str
    name: str
    type: str
    bus: str
    memory: int
    node: int = -1
    cpus: str = ""
    cores: str = ""
    files: tuple[str, ...] = ()
    links: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()
    fabric: str = ""
    mig: str = ""
    slices: tuple[Slice, ...] = ()
    module: int = -1
    profile: str = ""
    shared: tuple[str, ...] = ()
    firmware: str = ""
    place: RackPlace | None = None
    whole: str = ""


class Nic(msgspec.Struct, frozen=True):
    """One network adapter.

    name: the RDMA device (`mlx5_0`), or the interface where there is none. kind: infiniband or
    ethernet. rdma: whether GPUs can be reached through it. gbps: 0 where not known. paths: for each
    GPU, by its index, the path to it. gpus: those to which it is nearest. rail: equal numbers on
    all machines mean the same rail; -1 for an adapter that serves no GPU in particular.
    """

    name: str
    interface: str
    kind: str
    bus: str
    rdma: bool = False
    up: bool = False
    gbps: int = 0
    node: int = -1
    paths: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    rail: int = -1


class Inventory(msgspec.Struct, frozen=True):
    """A machine. memory: bytes. drivers: the version, by vendor. notes: what could not be read.

    Its JSON states memory in MiB, so the memory of the machine and of its GPUs is in whole MiB.
    """

    host: str
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory: int
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    drivers: dict[str, str] = {}
    simulated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def rails(self) -> tuple[str, ...]:
        """The adapters of the rails, in their order."""
        return tuple(
            network_adapter.name
            for network_adapter in sorted(
                self.nics, key=lambda network_adapter: network_adapter.rail
            )
            if network_adapter.rail >= 0
        )

    def to_json(self) -> str:
        """Return the inventory as one line of JSON."""
        return msgspec.json.encode(
            _with_memory_unit(self, lambda memory_bytes: memory_bytes >> 20)
        ).decode()


class BadInventory(ValueError):
    """A text is not an inventory; the message says where."""


def read_inventories(inventories_text: str, source_name: str = "the inventory") -> list[Inventory]:
    """Return the inventories in a text: one after the other, or in a list. Raises BadInventory.

    Lines of other programs between them, as `srun` may print, are ignored if they do not begin like
    JSON.
    """
    inventories = []
    for line_number, json_value in _values(inventories_text, source_name):
        try:
            json_entries = json_value if isinstance(json_value, list) else [json_value]
            inventories += [
                _with_memory_unit(
                    msgspec.convert(entry, Inventory), lambda memory_mib: memory_mib << 20
                )
                for entry in json_entries
            ]
        except msgspec.ValidationError as error:
            raise BadInventory(f"{source_name}, line {line_number}: {error}") from None
    if not inventories:
        raise BadInventory(f"{source_name}: there is none in it")
    return inventories


def _with_memory_unit(machine: Inventory, convert_memory: Callable[[int], int]) -> Inventory:
    """Return the same machine with all memory in another unit."""
    replace = msgspec.structs.replace
    gpus = [
        replace(
            gpu,
            memory=convert_memory(gpu.memory),
            slices=tuple(
                replace(gpu_slice, memory=convert_memory(gpu_slice.memory))
                for gpu_slice in gpu.slices
            ),
        )
        for gpu in machine.gpus
    ]
    return replace(machine, memory=convert_memory(machine.memory), gpus=tuple(gpus))


def _values(json_text: str, source_name: str) -> Iterator[tuple[int, object]]:
    json_decoder = json.JSONDecoder()
    text_position, line_number = 0, 1
    while text_position < len(json_text):
        if json_text[text_position] in "[{":
            try:
                json_value, value_end = json_decoder.raw_decode(json_text, text_position)
            except json.JSONDecodeError as error:
                raise BadInventory(f"{source_name}, line {error.lineno}: {error.msg}") from None
            yield line_number, json_value
        else:
            value_end = json_text.find("\n", text_position) + 1 or len(json_text)
        line_number += json_text.count("\n", text_position, value_end)
        text_position = value_end
        while text_position < len(json_text) and json_text[text_position].isspace():
            line_number += json_text[text_position] == "\n"
            text_position += 1
