"""A node like those that are sold: 2 sockets, 8 GPUs on a switch chip, a rail for each of them.

GPU n and adapter mlx5_n hang below the same PCIe switch; mlx5_8 (storage) below a root of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

HGX = """\
gpus = 8
name = "NVIDIA H100 80GB HBM3"
memory = 81559
nvlinks = 18
numa_nodes = 2
cpus = 32
driver = "570.124.06"
"""

CORES = 16  # in all; core i has the threads i and i + 16


def make_sys(root: Path) -> str:
    """Write the files; returns the root with a slash at its end."""
    for node in range(2):
        for k in range(4):
            gpu, adapter = 16 + 16 * (4 * node + k), f"mlx5_{4 * node + k}"
            switch = f"pci0000:{gpu - 2:02x}/0000:{gpu - 2:02x}:01.0/0000:{gpu - 1:02x}:00.0"
            below = f"{switch}/0000:{gpu:02x}"
            _device(root, f"{switch}/0000:ff:00.0/0000:{gpu:02x}:00.0", node)
            _device(root, f"{below}:01.0/0000:{gpu + 1:02x}:00.0", node)
            _rdma(root, adapter, f"{below}:01.0/0000:{gpu + 1:02x}:00.0", "InfiniBand", 400)
    _device(root, "pci0000:00/0000:00:1c.0/0000:01:00.0", 0)
    _rdma(root, "mlx5_8", "pci0000:00/0000:00:1c.0/0000:01:00.0", "Ethernet", 100)
    (root / "sys/class/net/lo").mkdir(parents=True)
    cpus = root / "sys/devices/system/cpu"
    for cpu in range(2 * CORES):
        core = cpu % CORES
        topology = cpus / f"cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "core_cpus_list").write_text(f"{core},{core + CORES}\n")
        (topology / "physical_package_id").write_text(f"{core * 2 // CORES}\n")
    (cpus / "online").write_text(f"0-{2 * CORES - 1}\n")
    nodes = root / "sys/devices/system/node"
    for node in range(2):
        (nodes / f"node{node}").mkdir(parents=True)
        first = node * CORES // 2
        last = first + CORES // 2 - 1
        near = f"{first}-{last},{first + CORES}-{last + CORES}\n"
        (nodes / f"node{node}/cpulist").write_text(near)
    (nodes / "online").write_text("0-1\n")
    (nodes / "has_memory").write_text("0-1\n")
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal:       2113534208 kB\n")
    return f"{root}/"


def _device(root: Path, path: str, node: int) -> None:
    folder = root / "sys/devices" / path
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{node}\n")
    links = root / "sys/bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    os.symlink(folder, links / folder.name)


def _rdma(root: Path, name: str, path: str, layer: str, gbps: int) -> None:
    device = root / "sys/devices" / path
    interface = f"ib{name[-1]}"
    (device / "net" / interface).mkdir(parents=True)
    port = device / "infiniband" / name / "ports/1"
    port.mkdir(parents=True)
    (port / "link_layer").write_text(f"{layer}\n")
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text(f"{gbps} Gb/sec (4X NDR)\n")
    os.symlink(device, device / "infiniband" / name / "device")
    for kind, target in (("infiniband", f"infiniband/{name}"), ("net", f"net/{interface}")):
        links = root / "sys/class" / kind
        links.mkdir(parents=True, exist_ok=True)
        os.symlink(device / target, links / (name if kind == "infiniband" else interface))
    os.symlink(device, device / "net" / interface / "device")
