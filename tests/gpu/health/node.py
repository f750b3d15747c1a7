"""A healthy node of eight GPUs: the library's stand-in, and matching files of a kernel."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from podwright.gpu.health import NodeReport, Settings, run
from podwright.ground.judgement import Says
from podwright.hosts.gpus import take_inventory
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from podwright.testing import FakeNode, FakeSlurm
from tests.machines.node import HGX, make_sys

_WORDS = {Says.NO: "sick", Says.YES: "look", Says.NOT_KNOWN: "not known"}
LOADED = "6,11,3000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01\n"


class Node:
    """`node.gpu(3, 'recovery = "reset"')`, `node.file("dev/kmsg", …)`, then `node.found()`."""

    def __init__(self, folder: Path) -> None:
        self.root = make_sys(folder / "root")
        self.described = folder / "node.toml"
        self.described.write_text(HGX)
        self.environ = {STANDIN_VARIABLE: str(self.described), "PATH": os.environ["PATH"]}
        self.file("dev/kmsg", "6,1,1000,-;Linux\n")
        for number in range(8):
            for place in (f"0000:{16 + 16 * number:02x}:00.0", f"0000:{17 + 16 * number:02x}:00.0"):
                self.link(place, 16, "32.0 GT/s PCIe")
            self.pci(f"0000:{16 + 16 * number:02x}:00.0")

    def file(self, name: str, text: str) -> None:
        path = Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def log(self, *texts: str, before: str = LOADED) -> None:
        """The kernel's log: each text one microsecond after the one before."""
        rows = [f"4,{20 + k},{4000000 + k},-;{text}\n" for k, text in enumerate(texts)]
        self.file("dev/kmsg", before + "".join(rows))

    def pci(self, bus: str, vendor: str = "0x10de", kind: str = "0x030200", **files: str) -> None:
        """A device on the PCI bus. files: further files of its folder."""
        for name, text in {"vendor": vendor, "class": kind, **files}.items():
            self.file(f"sys/bus/pci/devices/{bus}/{name}", f"{text}\n")

    def driven_by(self, bus: str, driver: str) -> None:
        folder = Path(self.root, "sys/bus/pci/drivers", driver)
        folder.mkdir(parents=True, exist_ok=True)
        Path(self.root, "sys/bus/pci/devices", bus, "driver").symlink_to(folder)

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

    def report(self, settings: Settings | None = None, *, since: float = 0.0) -> NodeReport:
        """Return the report, and check that every finding has its evidence and advice."""
        report = run(settings or Settings(), self.environ, root=self.root, since=since)
        for finding in report.findings:
            assert finding.because, finding
            assert finding.source or finding.says is Says.NOT_KNOWN, finding
            assert len(finding.do) > 10, finding
            assert finding.do.endswith("."), finding
        return report

    def found(self, settings: Settings | None = None) -> list[str]:
        return [f"{_WORDS[f.says]} {f.check}: {f}" for f in self.report(settings).findings]

    def inventory(self, path: Path) -> Settings:
        """Return settings that name the node's present hardware as its expected one."""
        path.write_text(take_inventory(self.environ, self.root, None).to_json())
        return msgspec.structs.replace(Settings(), inventory=str(path))


def one_node() -> FakeSlurm:
    """Return a Slurm of one node, n1."""
    slurm = FakeSlurm()
    slurm.nodes["n1"] = FakeNode()
    return slurm
