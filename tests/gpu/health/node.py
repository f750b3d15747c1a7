"""A healthy node of eight GPUs: the library's stand-in, and matching files of a kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from podwright.gpu.health import NodeReport, Settings, run
from podwright.hosts.gpus import Inventory
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from tests.machines.node import HGX, make_sys

#: The clock is this machine's own, whatever files say.
SKIP = ("clock",)


class Node:
    """`node.gpu(3, "xid = 79")`, `node.file("proc/meminfo", …)`, then `node.found()`."""

    def __init__(self, folder: Path) -> None:
        self.root = make_sys(folder / "root")
        self.described = folder / "node.toml"
        self.described.write_text(HGX)
        self.environ = {STANDIN_VARIABLE: str(self.described), "PATH": os.environ["PATH"]}
        self.file("dev/kmsg", "6,1,1000,-;Linux\n")
        self.file("proc/self/mounts", "/dev/sda / ext4 rw 0 0\n")
        for number in range(8):
            for place in (f"0000:{16 + 16 * number:02x}:00.0", f"0000:{17 + 16 * number:02x}:00.0"):
                self.link(place, 16, "32.0 GT/s PCIe")

    def file(self, name: str, text: str) -> None:
        path = Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, bus: str, width: int, speed: str) -> None:
        folder = f"sys/bus/pci/devices/{bus}"
        self.file(f"{folder}/max_link_width", "16\n")
        self.file(f"{folder}/current_link_width", f"{width}\n")
        self.file(f"{folder}/max_link_speed", "32.0 GT/s PCIe\n")
        self.file(f"{folder}/current_link_speed", f"{speed}\n")

    def gpu(self, index: int, text: str) -> None:
        with self.described.open("a") as file:
            file.write(f"\n[[gpu]]\nindex = {index}\n{text}\n")

    def whole(self, text: str) -> None:
        """Set what holds for all GPUs. Later words override earlier ones."""
        mine = {line.split(" = ")[0] for line in text.splitlines()}
        kept = [line for line in HGX.splitlines() if line.split(" = ")[0] not in mine]
        self.described.write_text("\n".join([*kept, text]) + "\n")

    def process(self, pid: int, name: str, **files: str) -> None:
        self.file(f"proc/{pid}/comm", f"{name}\n")
        self.file(f"proc/{pid}/stat", files.pop("stat", f"{pid} ({name}) S 1 0"))
        for key, text in files.items():
            self.file(f"proc/{pid}/{key}", text)

    def report(self, settings: Settings | None = None, skip: Iterable[str] = SKIP) -> NodeReport:
        """Return the report, and check that every finding has its meaning and advice."""
        found = run(settings or Settings(), self.environ, root=self.root, skip=skip)
        for finding in found.findings:
            assert finding.means.endswith("."), finding
            assert len(finding.do) > 10, finding
        return found

    def found(self, settings: Settings | None = None) -> list[str]:
        return [f"{f.level} {f.check}: {f}" for f in self.report(settings).findings]

    def inventories(self, path: Path, *others: Inventory) -> Settings:
        """Return settings that name the node's present hardware as its expected one."""
        from podwright.hosts.gpus import take_inventory

        mine = take_inventory(self.environ, self.root, None)
        path.write_text("\n".join(one.to_json() for one in (mine, *others)))
        return Settings(inventory=str(path))


def like(inventory: Inventory, host: str, **drivers: str) -> Inventory:
    """Another node of the same kind."""
    return msgspec.structs.replace(inventory, host=host, drivers=drivers)
