"""Logs in the formats of NCCL 2.4 to 2.27, and the findings for each."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.gpu.fabriclog import FabricReport, judge, read_log
from podwright.gpu.fabriclog._read_nccl_log import transport_of

HERE = Path(__file__).parent / "nccl"


def report(name: str) -> FabricReport:
    return read_log((HERE / name).read_text().splitlines())


# file: (version, ranks, near transports, far transports, GPUDirect between hosts, finding ids)
EXPECTED = {
    "2.4-old.log": ("2.4.8", 4, {"P2P"}, {"NET/IB"}, True, []),
    "2.10-gdr.log": ("2.10.3", 4, {"P2P"}, {"NET/IB"}, True, []),
    "2.10-socket-disabled.log": (
        "2.10.3",
        4,
        {"SHM"},
        {"NET/Socket"},
        False,
        ["tcp", "near-memory"],
    ),
    "2.18-no-gdr.log": ("2.18.3", 8, {"P2P"}, {"NET/IB"}, False, ["no-gpudirect"]),
    "2.18-no-device.log": ("2.18.3", 2, set(), {"NET/Socket"}, False, ["tcp"]),
    "2.18-shm.log": ("2.18.5", 4, {"SHM"}, set(), False, ["near-memory"]),
    "2.21-gdr.log": ("2.21.5", 8, {"P2P"}, {"NET/IB"}, True, []),
    "2.22-gdr-level.log": ("2.22.3", 4, {"P2P"}, {"NET/IB"}, False, ["no-gpudirect"]),
    "2.26-plugin.log": ("2.26.2", 4, {"P2P"}, {"NET/AWS Libfabric"}, True, []),
    "2.27-mixed-near-net.log": ("2.27.6", 2, {"NET/IB"}, set(), False, ["near-network"]),
}


def test_every_log_has_an_expectation() -> None:
    assert {path.name for path in HERE.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_each_pair_used_and_what_to_set(name: str) -> None:
    version, ranks, near, far, gpudirect, ids = EXPECTED[name]
    found = report(name)
    assert (found.version, found.ranks) == (version, ranks)
    between = [p for p in found.pairs if found.between_hosts(p)]
    inside = [p for p in found.pairs if not found.between_hosts(p)]
    assert {p.transport for p in inside} == near
    assert {p.transport for p in between} == far
    assert (bool(between) and all(p.gpudirect for p in between)) == gpudirect
    assert [f.id for f in judge(found)] == ids


@pytest.mark.parametrize(
    ("name", "finding", "evidence", "remedy"),
    [
        ("2.10-socket-disabled.log", "tcp", "NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=0"),
        ("2.18-no-device.log", "tcp", "no InfiniBand device", "ibv_devices"),
        ("2.18-no-gdr.log", "no-gpudirect", "mlx5_0, mlx5_1", "nvidia_peermem"),
        ("2.22-gdr-level.log", "no-gpudirect", "NCCL_NET_GDR_LEVEL=LOC", "NCCL_NET_GDR_LEVEL=SYS"),
        ("2.18-shm.log", "near-memory", "NCCL_P2P_DISABLE", "unset NCCL_P2P_DISABLE"),
        ("2.27-mixed-near-net.log", "near-network", "one host", "--gpus-per-node"),
    ],
)
def test_findings_name_evidence_and_remedy(
    name: str, finding: str, evidence: str, remedy: str
) -> None:
    match = next(f for f in judge(report(name)) if f.id == finding)
    assert evidence in match.problem
    assert remedy in match.remedy


def test_channels_are_counted_once_though_both_ends_write_them() -> None:
    found = report("2.18-no-gdr.log")
    assert {p.channels for p in found.pairs} == {4}


@pytest.mark.parametrize(
    ("via", "transport", "gpudirect"),
    [
        ("P2P/IPC", "P2P", False),
        ("P2P/direct pointer", "P2P", False),
        ("P2P/CUMEM/read", "P2P", False),
        ("direct shared memory", "SHM", False),
        ("SHM/direct/direct", "SHM", False),
        ("NET/IB/0", "NET/IB", False),
        ("NET/IB/3/GDRDMA/Shared", "NET/IB", True),
        ("NET/IBext_v8/0(8)/GDRDMA", "NET/IB", True),
        ("NET/Socket/0", "NET/Socket", False),
        ("NET/AWS Libfabric/1/GDRDMA", "NET/AWS Libfabric", True),
        ("COLLNET/SHARP/0/GDRDMA", "COLLNET/SHARP", True),
    ],
)
def test_the_words_after_via_name_transport_and_gpudirect(
    via: str, transport: str, gpudirect: bool
) -> None:
    assert transport_of(via) == (transport, gpudirect)


def test_a_log_without_nccl_says_how_to_get_one() -> None:
    with pytest.raises(InvalidRequest, match="NCCL_DEBUG=INFO"):
        read_log(["epoch 0", "epoch 1"])


def test_a_log_that_breaks_off_is_still_read() -> None:
    lines = (HERE / "2.21-gdr.log").read_text().splitlines()
    cut = lines[: len(lines) // 2]
    cut.append(lines[len(lines) // 2][:40])
    assert read_log(cut).version == "2.21.5"


def test_the_table_of_judged_logs_says_what_its_note_says() -> None:
    here = Path(__file__).parent
    with open(here / "judged_logs.csv", newline="") as table:
        rows = list(csv.DictReader(table))
    verdicts = Counter(row["verdict"] for row in rows)
    threads = sum(row["log"].startswith("#") for row in rows if row["verdict"] == "right")
    note = (here / "judged.md").read_text()
    assert f"{verdicts['right']} are right ({threads} threads" in note
    assert f'{verdicts["not known"]} say "not known"' in note
    assert set(verdicts) == {"right", "not known"}
