"""Each fault of a node is found, named by its part, and weighed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.gpu.health import Settings, all_checks, reason
from podwright.gpu.health._probe_with_timeout import apart
from podwright.gpu.health._settings import Check
from podwright.ground.judgement import Says
from podwright.hosts.gpus._amd_standin import STANDIN_VARIABLE as AMD
from tests.gpu.health.node import Node


def test_a_node_that_is_well_has_no_findings(node: Node) -> None:
    report = node.report()
    assert report.findings == ()
    assert report.fit
    assert report.judgement.source
    assert set(report.checks) == set(all_checks())
    assert reason(report.findings) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ecc_uncorrected = 2", "sick errors: GPU 3 2 uncorrected memory errors"),
        ('row_remap = "failed"', "sick errors: GPU 3 row remapping failed"),
        ('row_remap = "pending"', "look errors: GPU 3 row remapping pending"),
        ('recovery = "reset"', "sick recovery: GPU 3 needs a reset"),
        ('recovery = "reboot"', "sick recovery: GPU 3 needs a reboot of the node"),
        ('recovery = "drain"', "sick recovery: GPU 3 needs to be drained"),
        ("recovery = 4", "sick recovery: GPU 3 needs to be drained"),
        ("recovery = 5", "look recovery: GPU 3 needs its IMEX domain to be recovered"),
        ("recovery = 6", "sick recovery: GPU 3 needs a reset"),
        ("recovery = 7", "sick recovery: GPU 3 needs a reboot of the node"),
        ("links_down = [5, 7]", "sick links: GPU 3 NVLink 5,7 down"),
        ("nvlinks = 12", "sick links: GPU 3 12 NVLinks, not 18"),
        ("nvlink_mbps = 20000", "look links: GPU 3 NVLink at 20000 MB/s, not 26562"),
        ("lost = true", "sick gpus: GPU 3 has fallen off the bus"),
    ],
)
def test_a_fault_of_one_gpu_is_named(node: Node, text: str, said: str) -> None:
    node.gpu(3, text)
    report = node.report()
    assert said in node.found()
    assert report.fit is not said.startswith("sick")


def test_a_node_without_gpus_is_fit_and_said_to_have_none(node: Node) -> None:
    node.whole("gpus = 0")
    for number in range(8):
        node.pci(f"0000:{16 + 16 * number:02x}:00.0", vendor="0x102b")
    report = node.report()
    assert report.fit
    assert report.left_out[0] == "GPUs, since PCI and the drivers show none"


def test_a_request_that_is_new_is_not_known(node: Node) -> None:
    node.gpu(3, "recovery = 99")
    assert node.found() == ["not known recovery: GPU 3 needs action 99"]
    assert node.report().fit is None


def test_a_driver_that_tells_no_request_is_said_to(node: Node) -> None:
    node.gpu(3, 'recovery = ""')
    assert node.report().fit
    assert any("own request" in noun for noun in node.report().left_out)


@pytest.mark.parametrize("number", [13, 31, 79, 94, 145, 9999])
def test_a_number_alone_decides_nothing(node: Node, number: int) -> None:
    """The driver's event has no words."""
    node.gpu(3, f"xid = {number}")
    assert node.report().fit


def test_a_gpu_that_pci_shows_and_the_driver_does_not(node: Node) -> None:
    node.whole("gpus = 7")
    assert node.found() == ["sick gpus: GPU at 0000:80:00.0 not shown by the driver"]
    assert node.report().judgement.source == "the kernel"


@pytest.mark.parametrize(
    "files",
    [
        {"driver_override": "vfio-pci"},
        {"physfn/vendor": "0x10de"},
        {"kind": "0x030000", "boot_vga": "1"},
        {"kind": "0x068000"},
        {"kind": "0x040300"},
        {"vendor": "0x1a03", "kind": "0x030000"},
    ],
)
def test_guests_displays_and_other_devices_are_not_missed(
    node: Node, files: dict[str, str]
) -> None:
    node.pci("0000:e0:00.0", **files)
    assert node.found() == []


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub", "nouveau"])
def test_a_gpu_that_another_driver_has_is_not_missed(node: Node, driver: str) -> None:
    node.pci("0000:e0:00.0", kind="0x030000", boot_vga="0")
    assert node.found() == ["sick gpus: GPU at 0000:e0:00.0 not shown by the driver"]
    node.driven_by("0000:e0:00.0", driver)
    assert node.found() == []


def test_a_gpu_that_the_driver_was_told_to_leave_out_is_not_missed(node: Node) -> None:
    node.pci("0000:e0:00.0")
    node.file("proc/driver/nvidia/gpus/0000:e0:00.0/information", "GPU Excluded:\t Yes\n")
    assert node.found() == []


def test_a_gpu_of_whose_driver_there_is_nothing_to_ask_is_not_known(node: Node) -> None:
    node.pci("0000:e0:00.0", vendor="0x1002", kind="0x120000")
    assert node.found() == ["not known gpus: GPU at 0000:e0:00.0 no driver to ask"]
    report = node.report()
    assert report.fit is None
    assert report.judgement.says is Says.NOT_KNOWN


def test_a_gpu_that_the_inventory_has_and_the_node_lacks_is_named(
    node: Node, tmp_path: Path
) -> None:
    settings = node.inventory(tmp_path / "inventory.json")
    assert node.found(settings) == []
    node.whole("gpus = 7")
    Path(node.root, "sys/bus/pci/devices/0000:80:00.0/vendor").unlink()  # gone from PCI, too
    assert node.found(settings) == ["sick gpus: GPU 7 not there (0000:80:00.0)"]


def test_adapters_and_pci_links_that_differ_from_the_inventory_are_named(
    node: Node, tmp_path: Path
) -> None:
    settings = node.inventory(tmp_path / "inventory.json")
    port = "sys/class/infiniband/mlx5_{}/ports/1/{}"
    node.file(port.format(2, "state"), "1: DOWN\n")
    node.file(port.format(4, "rate"), "200 Gb/sec (4X HDR)\n")
    node.link("0000:21:00.0", 8, "32.0 GT/s PCIe")
    node.link("0000:31:00.0", 16, "16.0 GT/s PCIe")
    node.link("0000:20:00.0", 4, "32.0 GT/s PCIe")
    Path(node.root, "sys/class/infiniband/mlx5_6").rename(tmp_path / "gone")
    assert sorted(node.found(settings)) == [
        "look adapters: adapter mlx5_1 PCIe x8, not x16",
        "look adapters: adapter mlx5_2 PCIe 16 GT/s, not 32",
        "look links: GPU 1 PCIe x4, not x16",
        "sick adapters: adapter mlx5_2 down",
        "sick adapters: adapter mlx5_4 200 Gb/s, not 400",
        "sick adapters: adapter mlx5_6 not there",
    ]


def test_a_gpu_that_did_not_join_its_nvlink_fabric_is_sick(node: Node) -> None:
    node.whole('fabric = "5b1b5b1b-0000-4000-8000-000000000001:7"')
    assert node.found() == []
    node.gpu(6, "fabric_status = 2")
    assert node.found() == ["sick links: GPU 6 NVLink fabric failed"]


def test_faults_of_amds_gpus_are_named(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "amd.toml"
    well = 'gpus = 4\nxgmi = true\nxgmi_links = "UUUXXXX"\n'
    path.write_text(well)
    node.environ[AMD] = str(path)
    del node.environ["PODWRIGHT_STANDIN_NVML"]
    for bus in range(8):
        node.pci(f"0000:{16 + 16 * bus:02x}:00.0", vendor="0x102b")
    assert node.found() == []
    faults = '[[gpu]]\nindex = 2\necc_uncorrected = 1\n[[gpu]]\nindex = 3\nxgmi_links = "UDUXXXX"\n'
    path.write_text(well + faults)
    assert node.found() == [
        "sick errors: GPU 2 1 uncorrected memory errors",
        "sick links: GPU 3 XGMI link 1 down",
    ]


def test_a_site_switches_checks_and_leaves_parts_out(node: Node) -> None:
    node.gpu(3, "ecc_uncorrected = 2\nrecovery = 'reset'")
    node.gpu(4, "ecc_uncorrected = 9")
    some = Settings(checks={"errors": Check(limit=5), "recovery": Check(level="warn")})
    assert node.found(some) == [
        "sick errors: GPU 4 9 uncorrected memory errors",
        "look recovery: GPU 3 needs a reset",
    ]
    rest = Settings(checks={"errors": Check(level="off"), "recovery": Check(ignore=("GPU 3",))})
    assert node.found(rest) == []
    assert node.report(rest).left_out[0] == "the check errors"


def test_a_log_that_nobody_may_read_leaves_the_answer_open(node: Node) -> None:
    Path(node.root, "dev/kmsg").unlink()
    assert node.found() == ["not known kernel: the kernel's log cannot be read"]
    report = node.report()
    assert report.fit is None
    assert "the kernel's log, which only root may read" in report.judgement.left_out
    node.gpu(3, 'recovery = "reset"')
    assert node.report().fit is False


def test_a_reason_names_the_part_and_stays_short(node: Node) -> None:
    node.gpu(3, 'recovery = "reset"')
    assert reason(node.report().findings) == "podwright: GPU 3 needs a reset"
    for index in (0, 1, 2, 4, 6, 7):
        node.gpu(index, "ecc_uncorrected = 3\nrecovery = 'reboot'")
    long = reason(node.report().findings)
    assert long.startswith("podwright: GPU 0 needs a reboot of the node; GPU 1 needs a reboot")
    assert len(long) < 160
    assert long.endswith(" more)")


def test_a_library_that_does_not_answer_makes_the_node_sick(node: Node, tmp_path: Path) -> None:
    settings = node.inventory(tmp_path / "inventory.json")
    node.environ["PODWRIGHT_STANDIN_NVML"] = str(tmp_path / "none.toml")
    (found,) = node.found(settings)
    assert found.startswith("sick driver: driver: nvidia: ")


def test_a_driver_that_hangs_does_not_hang_the_check(node: Node) -> None:
    node.whole("hangs = true")
    patient = Settings(checks={"driver": Check(limit=0.3)})
    assert node.found(patient) == ["sick driver: driver: no answer within 0.3 s"]
    assert reason(node.report(patient).findings) == "podwright: driver: no answer within 0.3 s"


@pytest.mark.parametrize("answer", [lambda: os._exit(3), lambda: lambda: 0])
def test_a_driver_that_does_not_say_all_is_told(answer: Callable[[], object]) -> None:
    """It ended its process, or its answer cannot be handed over."""
    with pytest.raises(ChildProcessError, match="ended its process"):
        apart(answer, 300)
