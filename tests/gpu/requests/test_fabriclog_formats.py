"""What each release of NCCL, RCCL and the networks' plugins write, and the verdict on it.

The formats are those of the libraries' sources; `nccl/` holds whole logs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.fabriclog import judge, not_known, read_log


def line(rank: int, text: str, *, each: int = 2) -> str:
    return f"host{rank // each}:{100 + rank}:{200 + rank} [{rank % each}] NCCL INFO {text}"


def verdict(lines: list[str]) -> list[str]:
    """The ids of the findings, or `not known`, or nothing."""
    report = read_log(lines)
    return [f.id for f in judge(report)] or (["not known"] if not_known(report) else [])


#: Two hosts of two ranks: how a release writes a connection inside and between hosts.
RELEASES = {
    "2.3": ("Ring 00 : {a}[0] -> {b}[1] via P2P/IPC", "Ring 00 : {a} -> {b} via NET/IB/{d}{g}", 1),
    "2.4": (
        "Ring 00 : {a}[0] -> {b}[1] via P2P/IPC",
        "Ring 00 : {a} -> {b} [{way}] via NET/IB/{d}{g}",
        2,
    ),
    "2.5": (
        "Ring 00 : {a}[1a000] -> {b}[1b000] via P2P/IPC",
        "Ring 00 : {a}[1a000] -> {b}[1b000] [{way}] via NET/IB/{d}{g}",
        2,
    ),
    "2.7": (
        "Channel 00 : {a}[1a000] -> {b}[1b000] via P2P/IPC",
        "Channel 00 : {a}[1a000] -> {b}[1b000] [{way}] via NET/IB/{d}{g}",
        2,
    ),
    "2.12": (
        "Channel 00/0 : {a}[1a000] -> {b}[1b000] via P2P/IPC/read",
        "Channel 00/0 : {a}[1a000] -> {b}[1b000] [{way}] via NET/IB/{d}(1){g}",
        2,
    ),
    "2.22": (
        "Channel 00/0 : {a}[0] -> {b}[1] via P2P/CUMEM/read",
        "Channel 00/0 : {a}[1] -> {b}[0] [{way}] via NET/IB/{d}{g}/Shared",
        2,
    ),
    "RCCL": (
        "Channel 00/0 : {a}[c1000] -> {b}[c6000] via P2P/IPC comm 0x55d0 nRanks 04",
        "Channel 00/0 : {a}[c1000] -> {b}[c6000] [{way}] via NET/IB/{d}{g} comm 0x55d0 nRanks 04",
        2,
    ),
}


def log(release: str, *, gpudirect: bool = True, devices: tuple[int, int] = (0, 1)) -> list[str]:
    near, far, ends = RELEASES[release]
    out = ["RCCL version 2.18.3+hip6.0 HEAD:1a2b"] if release == "RCCL" else []
    out.append(line(0, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>"))
    g = "/GDRDMA" if gpudirect else ""
    for a, b in ((0, 1), (2, 3)):
        out.append(line(a, near.format(a=a, b=b)))
    for a, b, device in ((1, 2, devices[1]), (3, 0, devices[1]), (0, 3, devices[0])):
        out.append(line(b, far.format(a=a, b=b, d=device, g=g, way="receive")))
        if ends == 2:
            out.append(line(a, far.format(a=a, b=b, d=device, g=g, way="send")))
    return out


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read(release: str) -> None:
    report = read_log(log(release))
    assert {(p.a, p.b, p.transport, report.between_hosts(p)) for p in report.pairs} == {
        (0, 1, "P2P", False),
        (2, 3, "P2P", False),
        (1, 2, "NET/IB", True),
        (0, 3, "NET/IB", True),
    }
    assert verdict(log(release)) == []
    assert verdict(log(release, gpudirect=False)) == ["no-gpudirect"]
    assert report.library == ("RCCL" if release == "RCCL" else "NCCL")


@pytest.mark.parametrize(
    "before",
    [
        "[1,0]<stdout>: ",
        "0: ",
        "[2026-01-05 10:11:12] ",
        "(WorkerDict pid=7, ip=10.0.0.4) ",
        "2026-01-05T10:11:12.345Z node: ",
        "\x1b[36m(RayWorkerVllm pid=1)\x1b[0m ",
    ],
)
def test_lines_are_read_whatever_stands_before_them(before: str) -> None:
    lines = [before + one for one in log("2.22")]
    assert len(read_log(lines).pairs) == 4
    again = [f"{one} [repeated 7x across cluster]" for one in lines]
    assert {p.transport for p in read_log(again).pairs} == {"P2P", "NET/IB"}


def test_all_ranks_on_one_of_several_adapters_are_told() -> None:
    assert verdict(log("2.22", devices=(0, 0))) == ["one-adapter"]
    lines = [one for one in log("2.22", devices=(0, 0)) if "Using [0]" not in one]
    assert verdict(lines) == []  # nobody says that there are others


def test_hosts_of_one_name_are_told_apart_by_their_gpus() -> None:
    """Two machines called ubuntu: rank 0 and rank 2 both have GPU 0."""
    lines = [one.replace("host0:", "ubuntu:").replace("host1:", "ubuntu:") for one in log("2.22")]
    lines += [
        "ubuntu:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA",
        "ubuntu:2:2 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [send] via NET/IB/0/GDRDMA",
    ]
    report = read_log(lines)
    assert [p.transport for p in report.pairs if not report.between_hosts(p)] == ["P2P", "P2P"]
    assert verdict(lines) == []


def test_a_log_whose_hosts_were_taken_out_is_read() -> None:
    lines = [one[one.index("[") :] for one in log("2.22", gpudirect=False)]
    report = read_log(lines)
    assert len(report.pairs) == 4
    assert verdict(lines) == ["no-gpudirect"]


def test_adapters_are_counted_as_the_library_counts_them() -> None:
    joined = (
        "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} "
        "[1]={[2] mlx5_0:1/RoCE, [3] mlx5_1:1/RoCE} [RO]; OOB bond0:10.0.0.1<0>"
    )
    report = read_log([line(0, joined)])
    assert (report.adapters, report.cards) == (["mlx5_2", "mlx5_3", "mlx5_0", "mlx5_1"], 2)
    old = [line(0, f"NET/IB: [{n}] mlx5_{n}:1/IB") for n in range(4)]
    report = read_log([*old, line(0, "Using internal Network IB")])
    assert (len(report.adapters), report.networks) == (4, ["IB"])


def started(network: str, *more: str, nodes: int = 2) -> list[str]:
    """A log that ends before connections are made, as NCCL from 2.22 does until they are used."""
    own = [line(rank, f"Using network {network}") for rank in range(4)]
    said = f"comm 0x1 rank 0 nRanks 4 nNodes {nodes} localRanks 2 localRank 0 MNNVL 0"
    return [*(line(0, text) for text in more), *own, line(0, said)]


def test_what_was_chosen_stands_for_connections_that_are_not_in_the_log() -> None:
    """InfiniBand was switched off, and no connection was logged: that is not as it should be."""
    lines = started("Socket", "NCCL_IB_DISABLE set by environment to 1.")
    report = read_log(lines)
    (finding,) = judge(report)
    assert (finding.id, "NCCL_IB_DISABLE=1" in finding.problem) == ("tcp", True)
    assert verdict(started("IB")) == ["not known"]
    alone = [one for one in started("Socket", nodes=1) if "host1" not in one]
    assert verdict(alone) == ["not known"]
    # One process told of its own ranks alone: nothing is known of the way to the other hosts.
    near = [line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")]
    assert verdict([*started("IB"), *near]) == ["not known"]
    assert verdict([*started("Socket", "NCCL_IB_DISABLE set by environment to 1."), *near]) == [
        "tcp"
    ]


def test_what_the_driver_refuses_stands_for_connections_too() -> None:
    using = "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
    off = [f"NET/IB : GPU Direct RDMA Disabled for HCA {n} 'mlx5_{n}'" for n in (0, 1)]
    assert verdict(started("IB", using, *off)) == ["no-gpudirect"]
    assert verdict(started("IB", using, off[0])) == ["not known"]


def test_before_2_6_no_adapter_means_tcp() -> None:
    lines = [
        *(line(rank, "NET/IB : No device found.") for rank in (0, 2)),
        *(line(rank, "NET/Socket : Using [0]ens3:172.31.0.1<0>") for rank in (0, 2)),
    ]
    assert verdict(lines) == ["tcp"]
    assert verdict(lines[:1]) == ["not known"]
    assert verdict(["NCCL INFO NET/Socket : Using [0]bond0:10.8.184.2<0>"]) == ["not known"]


def test_the_log_of_one_rank_says_nothing_of_the_others() -> None:
    near = [line(0, "Ring 00 : 0[3d000] -> 1[b2000] via P2P/IPC")]
    done = line(0, "comm 0x7f rank 0 nranks 192 cudaDev 3 busId 3d000 - Init COMPLETE")
    assert verdict([*near, done]) == ["not known"]
    done = line(0, "comm 0x7f rank 0 nranks 2 cudaDev 3 busId 3d000 - Init COMPLETE")
    assert verdict([*near, done]) == []


def far(network: str, *, gpudirect: bool = False) -> list[str]:
    g = "/GDRDMA" if gpudirect else ""
    via = "Channel 00/0 : {}[0] -> {}[0] [{}] via NET/{}/0(0){}"
    return [
        line(0, via.format(0, 2, "send", network, g)),
        line(2, via.format(0, 2, "receive", network, g)),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (far("AWS Libfabric", gpudirect=True), []),
        (far("AWS Libfabric"), ["no-gpudirect"]),
        (far("Libfabric"), ["no-gpudirect"]),
        ([*far("AWS Libfabric"), line(0, "NET/OFI Running on g5.48xlarge platform")], []),
        ([*far("AWS Libfabric"), line(0, "NET/OFI Running on p3dn.24xlarge platform")], []),
        (
            [
                *far("Libfabric"),
                line(
                    0,
                    "NET/OFI NCCL_OFI_TUNER is not available for platform : g6e.48xlarge,",
                ),
            ],
            [],
        ),
        (
            [
                *far("AWS Libfabric", gpudirect=True),
                line(0, "NET/OFI Selected Provider is efa (found 4 nics)"),
            ],
            [],
        ),
        (
            [
                *far("AWS Libfabric", gpudirect=True),
                line(0, "NET/OFI Selected Provider is tcp;ofi_rxm"),
            ],
            ["tcp"],
        ),
        (far("FasTrak"), ["not known"]),
        (far("GPUDirectTCPX_v7"), ["not known"]),
        (far("gIB"), ["not known"]),
        (far("FastSocket"), ["not known"]),
        (far("SomethingNew"), ["not known"]),
        (far("IBext_v8", gpudirect=True), []),
        (far("IBext_v8"), ["no-gpudirect"]),
    ],
)
def test_other_networks_get_no_remedy_of_infiniband(lines: list[str], expected: list[str]) -> None:
    assert verdict(lines) == expected
    report = read_log(lines)
    if "IB" not in lines[0]:
        assert all("peermem" not in f.remedy and "GDR_LEVEL" not in f.remedy for f in judge(report))


RACK = [
    line(0, "Channel 00/0 : 0[0] -> 2[0] via P2P/MNNVL"),
    line(2, "Channel 00/0 : 2[0] -> 0[0] via P2P/MNNVL"),
]


def fabric(health: int, state: int = 3) -> str:
    return line(
        0,
        "MNNVL busId 0x1901000 fabric UUID 4ed.a1 cliqueId 0x7ffe "
        f"state {state} healthMask 0x{health:x}",
    )


@pytest.mark.parametrize(
    ("health", "state", "words"),
    [
        (0x0, 3, ""),
        (0xAA, 3, ""),
        (0x1AA, 3, ""),
        (0xA9, 3, "fewer NVLinks"),
        (0x9A, 3, "routes are ill"),
        (0x6A, 3, "timed out"),
        (0x5AA, 3, "NVLinks missing"),
        (0x0, 2, "had not joined"),
    ],
)
def test_the_fabric_of_a_rack_is_read_by_its_health(health: int, state: int, words: str) -> None:
    report = read_log([*RACK, fabric(health, state)])
    assert [f.id for f in judge(report)] == (["rack-fabric"] if words else [])
    assert words in "".join(f.problem for f in judge(report))


def test_imex_that_does_not_answer_is_named() -> None:
    warned = (
        "host0:1:1 [0] mnnvl.cc:74 (worker) NCCL WARN MNNVL (cliqueSize 8) is available but not "
        "working on this system. Check the IMEX channel configuration"
    )
    assert verdict([*RACK, warned]) == ["rack-fabric"]


def test_the_command_says_what_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.out"
    path.write_text("\n".join(started("IB")))
    assert main(["slurm", "check-fabric", str(path)]) == 3
    said = capsys.readouterr().out
    assert "Not known: no connection between ranks is in the log" in said
    assert "as it should" not in said
    assert main(["slurm", "check-fabric", "--json", str(path)]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "not known"
    path.write_text("\n".join(log("2.22", devices=(0, 0))))
    assert main(["slurm", "check-fabric", "--json", str(path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["sends"]["host0"] == {"100/0": [0], "101/1": [0]}


def groups(hosts: int, *, network: str = "IB", gpudirect: str = "/GDRDMA") -> list[str]:
    """Hosts of two GPUs, whose tasks are in two communicators: one in the host, one across."""
    out = []
    for host in range(hosts):
        first, second = 2 * host, 2 * host + 1
        near = "Channel 00/0 : {}[{}] -> {}[{}] via P2P/CUMEM/read"
        out += [line(first, near.format(0, 0, 1, 1)), line(second, near.format(1, 1, 0, 0))]
        for gpu, rank in enumerate((first, second)):
            far = f"[send] via NET/{network}/{gpu}{gpudirect}"
            to = (host + 1) % 2
            out.append(line(rank, f"Channel 00/0 : {host}[{gpu}] -> {to}[{gpu}] {far}"))
    return out


@pytest.mark.parametrize("hosts", [1, 2])
def test_each_communicator_counts_its_ranks_from_0(hosts: int) -> None:
    """As tensor and data parallel groups do; one host's log alone has half of it."""
    report = read_log(groups(hosts))
    assert {(p.a, p.b, p.transport, report.between_hosts(p)) for p in report.pairs} == {
        (0, 1, "P2P", False),
        (0, 1, "NET/IB", True),
    }
    assert verdict(groups(hosts)) == []
    assert verdict(groups(hosts, gpudirect="")) == ["no-gpudirect"]
    assert verdict(groups(hosts, network="Socket", gpudirect="")) == ["tcp"]


def test_several_communicators_on_one_host_are_no_two_hosts_of_one_name() -> None:
    lines = [line(0, "Using network Socket")]
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)):
        lines.append(line(a, f"Channel 00/0 : {a}[{a}] -> {b}[{b}] via P2P/CUMEM", each=4))
    for a, b in ((0, 1), (1, 0)):
        hop = f"Channel 00/0 : {a}[{2 + a}] -> {b}[{2 + b}] via P2P/CUMEM"
        lines.append(line(2 + a, hop, each=4))
    assert not read_log(lines).several_hosts
    assert verdict(lines) == []


def test_one_adapter_is_counted_by_processes_and_not_by_ranks() -> None:
    """One task is two ranks, in two communicators: it alone sends through the adapter."""
    lines = [line(0, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>")]
    for a, b in ((0, 1), (2, 3)):
        lines.append(line(0, f"Channel 00/0 : {a}[0] -> {b}[0] [send] via NET/IB/0/GDRDMA"))
    assert verdict(lines) == []


@pytest.mark.parametrize("name", ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_P2P_LEVEL=LOC"])
def test_what_keeps_ranks_of_a_host_on_the_network_is_named(name: str) -> None:
    variable, _, value = name.partition("=")
    lines = [line(0, f"{variable} set by environment to {value}.")]
    for a, b in ((0, 1), (1, 0)):
        lines.append(line(a, f"Channel 00 : {a}[{a}] -> {b}[{b}] [send] via NET/IB/0/GDRDMA"))
    (finding,) = judge(read_log(lines))
    assert (finding.id, name in finding.problem) == ("near-network", True)
    assert finding.remedy == f"unset {variable}"


def test_omni_path_gets_no_remedy_of_infiniband() -> None:
    lines = [one.replace("mlx5_", "hfi1_") for one in log("2.12", gpudirect=False)]
    (finding,) = judge(read_log(lines))
    assert finding.id == "no-gpudirect"
    assert "PSM2" in finding.remedy
    assert "nvidia_peermem" not in finding.remedy


def test_tcp_where_no_adapter_is_named_may_be_another_fabric_than_infiniband() -> None:
    lines = [one.replace("IB/", "Socket/") for one in log("2.12", gpudirect=False)[1:]]
    (finding,) = judge(read_log(lines))
    assert finding.id == "tcp"
    assert "Slingshot" in finding.remedy


def test_ranks_that_nobody_names_may_be_anywhere() -> None:
    """Rank 3 speaks to rank 2: there are two more, and nothing says where."""
    lines = [line(3, "Channel 00/0 : 3[3] -> 2[2] via P2P/CUMEM/read", each=4)]
    assert verdict(lines) == ["not known"]


def test_the_head_does_not_put_all_ranks_on_the_one_host_that_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.out"
    path.write_text(line(0, "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", each=8))
    assert main(["slurm", "check-fabric", str(path)]) == 0
    assert "9 ranks; 1 host wrote" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ("2.3.7", "export NCCL_IB_GDR_LEVEL=5"),
        ("2.4.8", "export NCCL_NET_GDR_LEVEL=5"),
        ("2.5.7", "export NCCL_NET_GDR_LEVEL=5"),
        ("2.6.4", "export NCCL_NET_GDR_LEVEL=SYS"),
        ("2.30.4", "export NCCL_NET_GDR_LEVEL=SYS"),
    ],
)
def test_a_remedy_is_one_that_this_release_reads(version: str, remedy: str) -> None:
    """Before 2.6 the level was a number, and SYS was read as 0: never."""
    log = [
        f"NCCL version {version}+cuda10.1",
        line(0, "Ring 00 : 0 -> 2 [send] via NET/IB/0"),
        line(2, "Ring 00 : 0 -> 2 [receive] via NET/IB/0"),
    ]
    far = line(0, "NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 (distance 4 >= 2)")
    for lines in (log, [*log, far]):
        (found,) = judge(read_log(lines))
        assert found.remedy.startswith(remedy)


def test_the_oldest_say_of_each_gpu_that_the_driver_lacks_a_module() -> None:
    log = [
        "NCCL version 2.3.7+cuda9.2",
        line(0, "NET/IB : GPU Direct RDMA Disabled for GPU 0 / HCA mlx5_0 (no module)"),
        line(2, "Ring 00 : 0 -> 2 via NET/IB/0"),
    ]
    (found,) = judge(read_log(log))
    assert "none of mlx5_0" in found.problem
    assert "nvidia_peermem" in found.remedy


def test_a_level_that_nccl_2_6_took_is_told() -> None:
    log = [
        "NCCL version 2.6.4+cuda10.2",
        line(0, "NCCL_NET_GDR_LEVEL set from environment to LOC"),
        line(0, "Ring 00 : 0[1a000] -> 2[1a000] [send] via NET/IB/0"),
    ]
    (found,) = judge(read_log(log))
    assert "NCCL_NET_GDR_LEVEL=LOC" in found.problem
