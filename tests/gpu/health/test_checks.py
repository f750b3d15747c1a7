"""Each fault of a node is found, named by its part, and weighed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from podwright.gpu.health import LEVELS, XIDS, Settings, all_checks, reason, xid
from podwright.gpu.health._kernel_facts import KernelClock
from podwright.gpu.health._probe_with_timeout import apart
from podwright.gpu.health._settings import Check, ExpectedNode, SiteScript
from podwright.hosts.gpus import read_inventories
from podwright.hosts.gpus._amd_standin import STANDIN_VARIABLE as AMD
from tests.gpu.health.node import Node, like


def test_a_node_that_is_well_has_no_findings(node: Node) -> None:
    report = node.report()
    assert report.findings == ()
    assert report.fit
    assert set(report.checks) == set(all_checks()) - {"clock"}
    assert reason(report.findings) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("xid = 79", "fail xid: GPU 3 XID 79"),
        ("xid = 31", "note xid: GPU 3 XID 31"),
        ("xid = 94", "warn xid: GPU 3 XID 94"),
        ("xid = 9999", "warn xid: GPU 3 XID 9999"),
        ("ecc_uncorrected = 2", "fail ecc: GPU 3 2 uncorrected memory errors"),
        ("ecc = false", "fail ecc: GPU 3 ECC is off"),
        ('row_remap = "failed"', "fail row-remap: GPU 3 row remapping failed"),
        ('row_remap = "pending"', "warn row-remap: GPU 3 row remapping pending"),
        ('recovery = "reboot"', "fail recovery: GPU 3 needs reboot"),
        ("links_down = [5, 7]", "fail nvlink: GPU 3 NVLink 5,7 down"),
        ("nvlinks = 12", "fail nvlink: GPU 3 12 NVLinks, not 18"),
        ("nvlink_mbps = 20000", "warn nvlink: GPU 3 NVLink at 20000 MB/s, not 26562"),
        ("celsius = 95", "warn temperature: GPU 3 95 °C"),
        ('slowed = ["power brake"]', "warn clocks: GPU 3 slowed: power brake"),
        ("persistence = false", "warn persistence: GPU 3 persistence mode is off"),
        (
            'firmware = "96.00.1"',
            "warn firmware: GPU 3 firmware 96.00.1, not 96.00.74.00.01",
        ),
    ],
)
def test_a_fault_of_one_gpu(node: Node, text: str, said: str) -> None:
    node.gpu(3, text)
    report = node.report()
    (finding,) = report.findings
    assert f"{finding.level} {finding.check}: {finding}" == said
    assert report.fit == (finding.level != "fail")


def test_a_lost_gpu(node: Node, tmp_path: Path) -> None:
    settings = node.inventories(tmp_path / "inventory.json")
    node.gpu(3, "lost = true")
    assert "fail gpus: GPU 3 has fallen off the bus" in node.found(settings)


def test_what_the_inventory_says_is_there(node: Node, tmp_path: Path) -> None:
    settings = node.inventories(tmp_path / "inventory.json")
    assert node.found(settings) == []
    node.whole("gpus = 7\nmemory = 40000")
    node.file("proc/meminfo", "MemTotal:       1500000000 kB\nHardwareCorrupted:    128 kB\n")
    found = node.found(settings)
    assert "fail gpus: GPU 7 not there (0000:80:00.0)" in found
    assert "fail gpu-memory: GPU 0 40000 MiB, not 81559" in found
    assert "fail memory: 1464843 MiB of memory, not 2063998" in found
    assert "warn memory: 128 KiB of memory are broken" in found
    assert len(found) == 7 + 3


def test_the_driver_of_most_nodes_of_its_kind(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    settings = node.inventories(path)
    (mine,) = read_inventories(path.read_text())
    others = [like(mine, f"n{k}", nvidia="580.1") for k in range(3)]
    node.inventories(path, *others)
    assert node.found(settings) == ["fail driver: driver 570.124.06, not 580.1"]
    own = Settings(expect=ExpectedNode(driver="560.0"))
    assert node.found(own) == ["fail driver: driver 570.124.06, not 560.0"]


def test_the_firmware_of_most_gpus_of_its_kind(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    settings = node.inventories(path)
    (mine,) = read_inventories(path.read_text())
    gpus = tuple(msgspec.structs.replace(gpu, firmware="97.00.1") for gpu in mine.gpus)
    newer = msgspec.structs.replace(mine, gpus=gpus)
    others = [like(newer, f"n{k}", **mine.drivers) for k in range(2)]
    node.inventories(path, *others)
    assert node.found(settings) == [
        f"warn firmware: GPU {k} firmware 96.00.74.00.01, not 97.00.1" for k in range(8)
    ]
    node.inventories(path, others[0])
    assert node.found(settings) == [], "of two kinds as many each, none is the right one"


def test_adapters_that_are_gone(node: Node, tmp_path: Path) -> None:
    settings = node.inventories(tmp_path / "inventory.json")
    gone = Path(node.root, "sys/class/infiniband/mlx5_2")
    gone.rename(tmp_path / "gone")
    assert node.found(settings) == ["fail adapters: adapter mlx5_2 not there"]
    expected = Settings(expect=ExpectedNode(adapters=8, gbps=800))
    assert node.found(expected) == [
        "fail adapters: 7 adapters beside GPUs, not 8",
        *(f"fail adapters: adapter mlx5_{k} 400 Gb/s, not 800" for k in (0, 1, 3, 4, 5, 6, 7)),
    ]


def test_adapters_and_links(node: Node, tmp_path: Path) -> None:
    settings = node.inventories(tmp_path / "inventory.json")
    port = "sys/class/infiniband/mlx5_{}/ports/1/{}"
    node.file(port.format(2, "state"), "1: DOWN\n")
    node.file(port.format(4, "rate"), "200 Gb/sec (4X HDR)\n")
    node.link("0000:21:00.0", 8, "32.0 GT/s PCIe")
    node.link("0000:31:00.0", 16, "16.0 GT/s PCIe")
    node.link("0000:20:00.0", 4, "32.0 GT/s PCIe")
    assert sorted(node.found(settings)) == [
        "fail adapters: adapter mlx5_1 PCIe x8, not x16",
        "fail adapters: adapter mlx5_2 PCIe 16 GT/s, not 32",
        "fail adapters: adapter mlx5_2 down",
        "fail adapters: adapter mlx5_4 200 Gb/s, not 400",
        "warn pcie: GPU 1 PCIe x4, not x16",
    ]


def test_xids_of_the_kernels_log(node: Node) -> None:
    before = "4,10,2000000,-;NVRM: Xid (PCI:0000:40:00): 119, pid=1, Timeout after 6s\n"
    again = "6,11,3000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06\n"
    after = (
        "4,12,4000000,-;NVRM: Xid (PCI:0000:40:00): 79, pid='<unknown>', GPU has fallen off\n"
        "4,13,5000000,-;NVRM: Xid (PCI:0000:50:00): 13, pid=4711, name=python, Graphics\n"
        "4,14,6000000,-;NVRM: Xid (PCI:0000:F0:00): 79, GPU has fallen off the bus.\n"
    )
    node.file("dev/kmsg", before + again + after)
    assert node.found() == [
        "fail xid: GPU 3 XID 79",
        "fail xid: GPU at 0000:f0:00.0 XID 79",
        "note xid: GPU 4 XID 13",
    ]
    from podwright.gpu.health import run

    rest = run(Settings(), node.environ, root=node.root, since=4.5, skip=("clock",)).findings
    assert [str(finding) for finding in rest] == ["GPU at 0000:f0:00.0 XID 79", "GPU 4 XID 13"]


def test_sxids_of_nvswitches(node: Node) -> None:
    """Lines as NVIDIA's driver writes them."""
    before = (
        "3,9,1000000,-;nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 27 LTSSM\n"
        "6,11,3000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06\n"
    )
    after = (
        "3,12,4000000,-;nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 28 LTSSM"
        " Fault Up\n"
        "3,13,4100000,-;nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Severity 5 Engine"
        " instance 28 Sub-engine instance 00\n"
        "4,14,5000000,-;nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 19084, Non-fatal, Link 10 AN1"
        " Heartbeat Timeout Error (First)\n"
    )
    node.file("dev/kmsg", before)
    assert node.found() == []
    node.file("dev/kmsg", before + after)
    assert node.found() == [
        "fail switches: NVSwitch 0 SXid 20034 Link 28 LTSSM Fault Up",
        "warn switches: NVSwitch 3 SXid 19084 Link 10 AN1 Heartbeat Timeout Error (First)",
    ]


def test_processes_of_no_job(node: Node) -> None:
    node.process(50, "slurmd")
    node.process(60, "slurmstepd: [7", environ="A=1\0SLURM_JOB_ID=7\0")
    node.process(61, "train", stat="61 (train) S 60 0")
    node.process(70, "leftover", stat="70 (left over) S 1 0")
    node.process(80, "train", cgroup="0::/system.slice/slurmstepd.scope/job_9/step_0/user\n")
    node.process(90, "nv-hostengine")
    pids = ", ".join(f"{{ pid = {pid}, memory = 1 }}" for pid in (61, 70, 80, 90))
    node.gpu(1, f"processes = [{pids}]")
    assert node.found() == ["warn processes: GPU 1 held by leftover 70 of no job"]
    node.file("proc/50/comm", "sshd\n")
    assert node.found() == []


def test_fabric_manager_and_imex_where_they_belong(node: Node) -> None:
    node.file("proc/driver/nvidia-nvswitch/devices/0000:05:00.0", "")
    node.whole('fabric = "5b1b5b1b-0000-4000-8000-000000000001:7"')
    assert node.found() == [
        "fail fabric: Fabric Manager does not run",
        "fail fabric: IMEX does not run",
    ]
    node.process(70, "nv-fabricmanage")
    node.process(71, "nvidia-imex")
    assert node.found() == []
    node.gpu(6, "fabric_status = 2")
    assert node.found() == ["fail fabric: GPU 6 NVLink fabric failed"]


def test_disks(node: Node) -> None:
    node.file("sys/class/nvme/nvme0/state", "live\n")
    node.file("sys/class/nvme/nvme1/state", "dead\n")
    node.file("sys/block/md0/md/degraded", "1\n")
    node.file("proc/self/mounts", "/dev/sda / ext4 ro 0 0\n")
    node.file("sys/devices/system/edac/mc/mc0/ue_count", "2\n")
    assert sorted(node.found()) == [
        "fail disks: disk / is read-only",
        "fail disks: disk md0 misses 1 disks",
        "fail disks: disk nvme1 dead",
        "fail memory: 2 uncorrected errors of the host's memory",
    ]


@pytest.mark.parametrize(
    ("said", "problems"),
    [
        (KernelClock(), []),
        (KernelClock(True, 0.9), []),
        (KernelClock(True, 1.5), ["the clock may be 1.5 s off"]),
        (KernelClock(False, 16.0), ["the clock is set by nobody"]),
    ],
)
def test_a_clock_that_is_off(said: KernelClock, problems: list[str]) -> None:
    check = all_checks()["clock"]
    asked: Any = SimpleNamespace(seen=SimpleNamespace(clock=said), limit=check.limit)
    assert [wrong.problem for wrong in check.find(asked)] == problems
    assert check.level == "warn"


def test_amd(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "amd.toml"
    path.write_text("gpus = 4\nxgmi = true\n[[gpu]]\nindex = 2\necc_uncorrected = 1\n")
    node.environ[AMD] = str(path)
    del node.environ["PODWRIGHT_STANDIN_NVML"]
    assert node.found() == ["fail ecc: GPU 2 1 uncorrected memory errors"]


def test_heat_and_links_of_amd(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "amd.toml"
    well = 'gpus = 4\nxgmi = true\ncelsius = 60\nxgmi_links = "UUUXXXX"\n'
    path.write_text(well)
    node.environ[AMD] = str(path)
    del node.environ["PODWRIGHT_STANDIN_NVML"]
    assert node.found() == []
    path.write_text(
        f'{well}[[gpu]]\nindex = 1\ncelsius = 104\n[[gpu]]\nindex = 3\nxgmi_links = "UDUXXXX"\n'
    )
    assert node.found() == ["fail nvlink: GPU 3 XGMI link 1 down", "warn temperature: GPU 1 104 °C"]


def test_clocks_of_amd(node: Node, tmp_path: Path) -> None:
    """All are asked at once, since each answer takes its time; older GPUs cannot tell."""
    path = tmp_path / "amd.toml"
    well = "gpus = 8\nxgmi = true\nviolation_takes = 0.1\n"
    node.environ[AMD] = str(path)
    del node.environ["PODWRIGHT_STANDIN_NVML"]
    path.write_text(well)
    assert node.found() == []
    path.write_text(f'{well}slowed = ["ppt_pwr"]\n')
    assert node.found() == [], "under load each is at its power limit"
    hot = '[[gpu]]\nindex = 5\nslowed = ["ppt_pwr", "socket_thrm", "hbm_thrm"]\n'
    path.write_text(well + hot)
    assert node.found() == ["warn clocks: GPU 5 slowed: thermal, memory hot"]


def test_a_site_switches_bounds_and_extends(node: Node, tmp_path: Path) -> None:
    node.gpu(3, "celsius = 80\nxid = 79")
    said = Settings(
        checks={
            "temperature": Check(level="fail", limit=75),
            "xid": Check(level="warn"),
            "ecc": Check(level="off"),
        },
        scripts=(
            SiteScript("fine", ("true",)),
            SiteScript("quota", ("sh", "-c", "echo scratch is full; exit 2")),
            SiteScript("fans", ("sh", "-c", "echo fan 3 is slow; exit 1")),
            SiteScript("typo", ("/no/such/program",)),
            SiteScript("crash", ("sh", "-c", "kill -SEGV $$")),
            SiteScript("slow", ("sleep", "600"), timeout=0.2),
        ),
    )
    assert sorted(node.found(said)) == [
        "fail scripts: quota scratch is full",
        "fail temperature: GPU 3 80 °C",
        "warn scripts: crash is broken: ended with -11",
        "warn scripts: fans fan 3 is slow",
        "warn scripts: slow is broken: no end within 0.2 s",
        "warn scripts: typo is broken: ended with 127",
        "warn xid: GPU 3 XID 79",
    ]
    ignored = Settings(checks={"xid": Check(ignore=("GPU 3",))})
    assert node.found(ignored) == []


def test_a_mount_that_hangs_does_not_hang_the_check(node: Node, tmp_path: Path) -> None:
    """`stat` stands for the file server: for one path it never comes back."""
    tools = tmp_path / "bin"
    tools.mkdir()
    hung = tools / "stat"
    hung.write_text('#!/bin/sh\ncase "$*" in *home*) exec sleep 600;; esac\necho 10 5 10 5\n')
    hung.chmod(0o755)
    node.environ["PATH"] = f"{tools}:{node.environ['PATH']}"
    table = "s:/home /home nfs4 rw 0 0\ns:/data /data nfs4 rw 0 0\n/dev/sda / xfs rw 0 0\n"
    node.file("proc/self/mounts", table)
    said = Settings(expect=ExpectedNode(mounts=("/scratch",)), checks={"mounts": Check(limit=0.3)})
    assert node.found(said) == [
        "fail mounts: mount /scratch not mounted",
        "fail mounts: mount /home does not answer",
    ]


def test_disks_that_are_full_and_mounts_that_fail(node: Node, tmp_path: Path) -> None:
    said = tmp_path / "stat"
    said.write_text(
        '#!/bin/sh\nfor path; do :; done\ncase "$path" in\n/) echo 100 1 100 50;;\n'
        "/tmp) echo 100 50 100 2;;\n/var) echo 100 50 0 0;;\n"
        "*) echo \"stat: cannot read '$path': Stale file handle\"; exit 1;;\nesac\n"
    )
    said.chmod(0o755)
    node.environ["PATH"] = f"{tmp_path}:{node.environ['PATH']}"
    node.file("proc/self/mounts", "/dev/sda / ext4 rw 0 0\ns:/home /home nfs4 rw 0 0\n")
    assert node.found() == [
        "fail disks: disk / 1 % of room free",
        "fail disks: disk /tmp 2 % of inodes free",
        "fail mounts: mount /home fails: Stale file handle",
    ]


def test_a_reason_names_the_part_and_stays_short(node: Node) -> None:
    node.gpu(3, "xid = 79")
    node.gpu(5, "xid = 31")
    assert reason(node.report().findings) == "podwright: GPU 3 XID 79"
    for index in (0, 1, 2, 4, 6, 7):
        node.gpu(index, "xid = 79\nrecovery = 'reboot'")
    long = reason(node.report().findings)
    assert long.startswith("podwright: GPU 0 XID 79; GPU 1 XID 79")
    assert len(long) < 150
    assert long.endswith(" more")


def test_the_library_that_does_not_answer(node: Node, tmp_path: Path) -> None:
    settings = node.inventories(tmp_path / "inventory.json")
    node.environ["PODWRIGHT_STANDIN_NVML"] = str(tmp_path / "none.toml")
    (found,) = node.found(settings)
    assert found.startswith("fail library: driver: nvidia: ")


def test_a_driver_that_hangs_does_not_hang_the_check(node: Node) -> None:
    node.whole("hangs = true")
    patient = Settings(checks={"library": Check(limit=0.3)})
    assert node.found(patient) == ["fail library: driver: no answer within 0.3 s"]
    assert reason(node.report(patient).findings) == "podwright: driver: no answer within 0.3 s"


@pytest.mark.parametrize("answer", [lambda: os._exit(3), lambda: lambda: 0])
def test_a_driver_that_does_not_say_all_is_told(answer: Callable[[], object]) -> None:
    """It ended its process, or its answer cannot be handed over."""
    with pytest.raises(ChildProcessError, match="ended its process"):
        apart(answer, 300)


def test_every_xid_has_its_words() -> None:
    for number, known in XIDS.items():
        assert known.level in LEVELS, number
        assert known.means.endswith(".")
        assert known.do.endswith((".", "N)"))
    assert {n for n in (13, 31, 43, 45) if xid(n).level == "note"} == {13, 31, 43, 45}
    assert {n for n in (48, 64, 74, 79, 95, 119, 120) if xid(n).level == "fail"} == {
        *(48, 64, 74, 79, 95, 119, 120)
    }
