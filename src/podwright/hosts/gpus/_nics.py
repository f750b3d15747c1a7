"""The network adapters of a machine, and the GPUs that are nearest to each.

Traffic between machines is fastest where an adapter and its GPU are below one PCIe switch. Such
adapters, all of the same speed, are rails. Those further away carry storage and logins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from podwright.hosts.gpus._pci import numa_node, pci_folder, pci_path, read_line
from podwright.hosts.gpus._values import PATHS, Gpu, Nic

#: An adapter that is further away than this serves no GPU in particular.
_NEAR = PATHS.index("NODE")


def read_nics(gpus: Sequence[Gpu], root: str = "/") -> tuple[Nic, ...]:
    """Return the adapters that the kernel lists, with their paths to these GPUs; rails first."""
    folders = [pci_folder(gpu.bus, root) for gpu in gpus]
    nics = [_rdma(root, name) for name in _names(root, "infiniband")]
    seen = {nic.interface for nic in nics}
    nics += [
        nic for name in _names(root, "net") if name not in seen and (nic := _plain(root, name))
    ]
    placed = [_place(nic, folders, root) for nic in nics]
    return tuple(_number(placed))


def _names(root: str, kind: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(root, "sys/class", kind)))
    except OSError:
        return []


def _rdma(root: str, name: str) -> Nic:
    folder = os.path.join(root, "sys/class/infiniband", name)
    ports = os.path.join(folder, "ports")
    numbers = sorted(os.listdir(ports)) if os.path.isdir(ports) else []
    port = os.path.join(ports, numbers[0]) if numbers else ports
    nets = os.path.join(folder, "device/net")
    interfaces = sorted(os.listdir(nets)) if os.path.isdir(nets) else [""]
    layer = read_line(os.path.join(port, "link_layer"))
    return Nic(
        name=name,
        interface=interfaces[0],
        kind="infiniband" if layer == "InfiniBand" else "ethernet",
        bus=_bus(folder),
        rdma=True,
        up=read_line(os.path.join(port, "state")).endswith("ACTIVE"),
        gbps=_leading(read_line(os.path.join(port, "rate"))),
    )


def _plain(root: str, name: str) -> Nic | None:
    """Return an adapter without RDMA; None for an interface that is not a hardware."""
    folder = os.path.join(root, "sys/class/net", name)
    if not _bus(folder):
        return None
    return Nic(
        name=name,
        interface=name,
        kind="ethernet",
        bus=_bus(folder),
        up=read_line(os.path.join(folder, "operstate")) == "up",
        gbps=max(_leading(read_line(os.path.join(folder, "speed"))), 0) // 1000,
    )


def _bus(folder: str) -> str:
    """Return the PCI address of the device behind a class's folder, or empty."""
    device = os.path.realpath(os.path.join(folder, "device"))
    addresses = re.findall(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", device)
    return addresses[-1] if addresses else ""


def _leading(text: str) -> int:
    match = re.match(r"-?\d+", text)
    return int(match[0]) if match else 0


def _place(nic: Nic, folders: Sequence[str], root: str) -> Nic:
    folder = pci_folder(nic.bus, root)
    paths = tuple(pci_path(folder, gpu) for gpu in folders)
    best = min((PATHS.index(path) for path in paths), default=len(PATHS))
    near = tuple(i for i, path in enumerate(paths) if PATHS.index(path) == best < _NEAR)
    return msgspec.structs.replace(nic, node=numa_node(folder), paths=paths, gpus=near)


def _number(nics: Sequence[Nic]) -> list[Nic]:
    """Number the rails in the order of the GPUs that they serve."""
    serving = [nic for nic in nics if nic.rdma and nic.gpus]
    fastest = max((nic.gbps for nic in serving), default=0)
    rails = sorted(
        (nic for nic in serving if nic.gbps == fastest), key=lambda nic: (nic.gpus, nic.bus)
    )
    names = [nic.name for nic in rails]
    return [msgspec.structs.replace(nic, rail=i) for i, nic in enumerate(rails)] + [
        nic for nic in nics if nic.name not in names
    ]
