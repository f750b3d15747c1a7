"""The network adapters of a machine, and the GPUs that are nearest to each.

Traffic between machines is fastest where an adapter and its GPU are below one PCIe switch. Such
adapters, all of the same speed, are rails. Those further away carry storage and logins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from podwright.hosts.gpus._inventory_types import PATHS, Gpu, Nic
from podwright.hosts.gpus._pci import numa_node, pci_folder, pci_path, read_line

#: An adapter that is further away than this serves no GPU in particular.
_FARTHEST_SERVING_PATH = PATHS.index("NODE")


def read_nics(gpus: Sequence[Gpu], root_folder: str = "/") -> tuple[Nic, ...]:
    """Return the adapters that the kernel lists, with their paths to these GPUs; rails first."""
    gpu_folders = [pci_folder(gpu.bus, root_folder) for gpu in gpus]
    nics = [_rdma(root_folder, name) for name in _device_names_of_class(root_folder, "infiniband")]
    interfaces = {nic.interface for nic in nics}
    nics += [
        nic
        for name in _device_names_of_class(root_folder, "net")
        if name not in interfaces and (nic := _read_plain_adapter(root_folder, name))
    ]
    placed_nics = [_place_adapter(nic, gpu_folders, root_folder) for nic in nics]
    return tuple(_number_rails(placed_nics))


def _device_names_of_class(root_folder: str, device_class: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(root_folder, "sys/class", device_class)))
    except OSError:
        return []


def _rdma(root_folder: str, rdma_device: str) -> Nic:
    device_folder = os.path.join(root_folder, "sys/class/infiniband", rdma_device)
    ports_folder = os.path.join(device_folder, "ports")
    port_numbers = sorted(os.listdir(ports_folder)) if os.path.isdir(ports_folder) else []
    port_folder = os.path.join(ports_folder, port_numbers[0]) if port_numbers else ports_folder
    interfaces_folder = os.path.join(device_folder, "device/net")
    interfaces = sorted(os.listdir(interfaces_folder)) if os.path.isdir(interfaces_folder) else [""]
    link_layer = read_line(os.path.join(port_folder, "link_layer"))
    return Nic(
        name=rdma_device,
        interface=interfaces[0],
        kind="infiniband" if link_layer == "InfiniBand" else "ethernet",
        bus=_pci_address_of(device_folder),
        rdma=True,
        up=read_line(os.path.join(port_folder, "state")).endswith("ACTIVE"),
        gbps=_leading_number(read_line(os.path.join(port_folder, "rate"))),
    )


def _read_plain_adapter(root_folder: str, interface_name: str) -> Nic | None:
    """Return an adapter without RDMA; None for an interface that is not a hardware."""
    interface_folder = os.path.join(root_folder, "sys/class/net", interface_name)
    if not _pci_address_of(interface_folder):
        return None
    return Nic(
        name=interface_name,
        interface=interface_name,
        kind="ethernet",
        bus=_pci_address_of(interface_folder),
        up=read_line(os.path.join(interface_folder, "operstate")) == "up",
        gbps=max(_leading_number(read_line(os.path.join(interface_folder, "speed"))), 0) // 1000,
    )


def _pci_address_of(class_folder: str) -> str:
    """Return the PCI address of the device behind a class's folder, or empty."""
    path = os.path.realpath(os.path.join(class_folder, "device"))
    addresses = re.findall(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", path)
    return addresses[-1] if addresses else ""


def _leading_number(number_text: str) -> int:
    match = re.match(r"-?\d+", number_text)
    return int(match[0]) if match else 0


def _place_adapter(nic: Nic, gpu_folders: Sequence[str], root_folder: str) -> Nic:
    nic_folder = pci_folder(nic.bus, root_folder)
    paths_to_gpus = tuple(pci_path(nic_folder, gpu_folder) for gpu_folder in gpu_folders)
    rank = min((PATHS.index(gpu_path) for gpu_path in paths_to_gpus), default=len(PATHS))
    nearest_gpus = tuple(
        index
        for index, gpu_path in enumerate(paths_to_gpus)
        if PATHS.index(gpu_path) == rank < _FARTHEST_SERVING_PATH
    )
    return msgspec.structs.replace(
        nic, node=numa_node(nic_folder), paths=paths_to_gpus, gpus=nearest_gpus
    )


def _number_rails(nics: Sequence[Nic]) -> list[Nic]:
    """Number the rails in the order of the GPUs that they serve."""
    serving_nics = [nic for nic in nics if nic.rdma and nic.gpus]
    gbps = max((nic.gbps for nic in serving_nics), default=0)
    rail_nics = sorted(
        (nic for nic in serving_nics if nic.gbps == gbps),
        key=lambda nic: (nic.gpus, nic.bus),
    )
    names = [nic.name for nic in rail_nics]
    return [msgspec.structs.replace(nic, rail=number) for number, nic in enumerate(rail_nics)] + [
        nic for nic in nics if nic.name not in names
    ]
