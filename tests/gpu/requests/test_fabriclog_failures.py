"""The first failure of a log, its cause where the log names it, and worlds that never joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.fabriclog import FabricReport, judge, judged, not_known, read_log
from podwright.ground.judgement import Says

START = "a1:11:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nNCCL version 2.21.5+cuda12.4\n"
#: Each failure as NCCL and frameworks write it, with the id of its cause.
FAILURES = {
    "duplicate-gpu": "a1:11:30 [0] init.cc:7 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 "
    "both on CUDA device 4000",
    "no-socket-interface": "a1:11:11 [0] bootstrap.cc:4 NCCL WARN Bootstrap : no socket interface "
    "found",
    "dev-shm": "a1:11:30 [0] misc/shmutils.cc:7 NCCL WARN Error: failed to extend /dev/shm/nccl-x "
    "to 999 bytes",
    "driver-too-old": "a1:11:30 [0] init.cc:1 NCCL WARN Cuda failure 'CUDA driver version is "
    "insufficient for CUDA runtime version'",
    "peer-access": "a1:11:30 [0] transport/p2p.cc:2 NCCL WARN failed to open CUDA IPC handle : 217 "
    "peer access is not supported between these two devices",
    "gpu-memory": "a1:11:30 [0] alloc.h:2 NCCL WARN Cuda failure 2 'out of memory'",
    "no-such-gpu": "a1:11:30 [0] init.cc:2 NCCL WARN Cuda failure 'invalid device ordinal'",
    "memory-lock": "a1:11:30 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed with error "
    "Cannot allocate memory",
    "gid": "a1:11:30 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_modify_qp failed with error "
    "Invalid argument",
    "port-down": "a1:11:30 [0] transport/net_ib.cc:9 NCCL WARN NET/IB : mlx5_0:1 Got async event : "
    "port error",
    "twice-the-rank": "a1:11:30 [0] bootstrap.cc:3 NCCL WARN Bootstrap Root : rank 1 of 2 ranks "
    "has "
    "already checked in",
    "sizes-of-world": "a1:11:30 [0] bootstrap.cc:3 NCCL WARN Bootstrap Root : mismatch in rank "
    "count "
    "from procs 4 : 2",
    "mismatched-calls": "a1:11:30 [0] misc/socket.cc:3 NCCL WARN Message truncated : received 64 "
    "bytes instead of 8",
    "nvls": "a1:11:30 [0] transport/nvls.cc:3 NCCL WARN Cuda failure 1 'invalid argument'",
    "topology": "a1:11:30 [0] graph/paths.cc:3 NCCL WARN Failed to find reverse path from "
    "remNode 1",
    "files": "a1:11:30 [0] misc/socket.cc:3 NCCL WARN accept failed : Too many open files",
    "efa": "a1:11:30 [0] send:9 NCCL WARN NET/OFI Request completed with error. RC: 21",
    "bind": "a1:11:11 [0] misc/socket.cc:3 NCCL WARN Call to bind failed : Cannot assign requested "
    "address",
    "no-route": "a1:11:30 [0] misc/socket.cc:3 NCCL WARN Connect to 10.9.0.7<4> failed : No "
    "route to "
    "host",
    "connection-refused": "a1:11:30 [0] include/socket.h:3 NCCL WARN Connect to 10.9.0.7<4> failed "
    ": Connection refused",
    "gpu-fault": "a1:11:30 [0] enqueue.cc:3 NCCL WARN Cuda failure 'an illegal memory access was "
    "encountered'",
    "initialization": "a1:11:30 [0] init.cc:3 NCCL WARN Cuda failure 3 'initialization error'",
    "program-arguments": "a1:11:30 [0] misc/argcheck.cc:3 NCCL WARN Broadcast : invalid root 9 "
    "(root "
    "should be in the 0..4 range)",
    "peer-gone": "a1:11:30 [0] misc/socket.cc:3 NCCL WARN socketProgress: Connection closed by "
    "remote peer a2<4>",
    "watchdog": "[rank1]:[E ProcessGroupNCCL.cpp:6] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)",
    "bus-error": "[a1:11] Signal: Bus error (7)",
}


def read(text: str) -> FabricReport:
    return read_log(text.splitlines())


@pytest.mark.parametrize("cause", FAILURES)
def test_a_failed_job_is_told_its_cause_first_and_never_that_there_is_nothing_to_set(
    cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job.out"
    log.write_text(f"{START}{FAILURES[cause]}\na1:11:30 [0] NCCL INFO transport.cc:68 -> 2\n")
    assert main(["slurm", "check-fabric", str(log)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{cause}: the job failed")
    assert "What would help: " in out.splitlines()[1]
    assert "Nothing to set" not in out


def test_an_error_that_nobody_explains_is_shown_as_it_stands() -> None:
    report = read(
        f"{START}a1:11:30 [0] x.cc:1 NCCL WARN Odd thing 7\na1:11:30 [0] NCCL INFO x.cc:2 -> 3"
    )
    finding, *_ = judge(report)
    assert (finding.id, "Odd thing 7" in finding.problem) == ("failed", True)
    assert "why the job failed: Odd thing 7" in not_known(report)
    assert judged(report, [finding], not_known(report)).says is Says.NO


def test_what_nccl_does_without_is_a_warning_and_no_failure() -> None:
    warned = "a1:11:30 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_open_device failed\n"
    went_on = "a1:11:30 [0] NCCL INFO Using network Socket\n"
    assert read(START + warned + went_on).failure is None
    handed_up = "a1:11:30 [0] NCCL INFO transport/net_ib.cc:2 -> 3\n"
    complete = "a1:11:30 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n"
    report = read(START + warned + handed_up + complete)
    assert report.failure is None
    assert report.warnings == ["Call to ibv_open_device failed"]
    assert read(START + complete + warned + handed_up).failure is not None
    in_progress = "a1:11:30 [0] NCCL INFO group.cc:2 -> 7\n"
    assert read(START + in_progress).failure is None


def test_a_plugin_that_fails_and_is_done_without_is_no_failure() -> None:
    report = read(
        START + "a1:11:30 [0] create:1 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n"
        "a1:11:30 [0] NCCL INFO net.cc:56 -> 2\n"
        "a1:11:30 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
    )
    assert report.failure is None


def test_a_lost_connection_counts_only_where_nothing_else_failed() -> None:
    gone, cause = FAILURES["peer-gone"], FAILURES["gpu-memory"].replace("a1", "a2")
    handed_up = "\na1:11:30 [0] NCCL INFO net.cc:2 -> 6\n"
    report = read(START + gone + handed_up + cause)
    assert report.failure
    assert report.failure.cause
    assert (report.failure.cause.id, report.failure.host) == ("gpu-memory", "a2")


def test_what_a_framework_quotes_of_nccl_is_read() -> None:
    report = read(
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.hpp:3, unhandled cuda "
        "error\n"
        "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "[rank0]: Last error:\n"
        "[rank0]: Cuda failure 'out of memory'\n"
    )
    assert report.failure
    assert report.failure.line == "Cuda failure 'out of memory'"
    assert report.failure.cause
    assert report.failure.cause.id == "gpu-memory"


def test_an_aborted_communicator_without_an_error_is_not_known() -> None:
    report = read(START + "a1:11:30 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Abort COMPLETE\n")
    assert any("was aborted" in fact for fact in not_known(report))


def world(host: str, ranks: int, comm: str = "0x1") -> str:
    return "".join(
        f"{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO comm {comm} rank {rank} nranks "
        f"{ranks} "
        f"cudaDev {rank} busId {rank}a000 commId 0x{host} - Init COMPLETE\n"
        for rank in range(ranks)
    )


@pytest.mark.parametrize("ranks", [1, 4])
def test_worlds_of_one_host_each_never_joined_and_use_no_tcp(ranks: int) -> None:
    tcp = (
        "{0}:100:100 [0] NCCL INFO NET/IB : No device found.\n"
        "{0}:100:100 [0] NCCL INFO Using network Socket\n"
    )
    logs = "".join(tcp.format(host) + world(host, ranks) for host in ("n1", "n2"))
    (finding,) = judge(read(logs))
    assert finding.id == "never-joined"
    assert f"of {ranks} rank" in finding.problem
    one = judge(read(tcp.format("n1") + world("n1", ranks)))
    assert "never-joined" not in [finding.id for finding in one]


def test_worlds_that_a_connection_joins_are_one() -> None:
    joined = "n1:100:100 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    report = read(world("n1", 2) + world("n2", 2) + joined)
    assert report.separate_worlds == 0


def test_a_missing_library_is_remedied_by_the_library() -> None:
    report = read(
        "n1:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n"
        "n1:1:1 [0] NCCL INFO Using network Socket\n"
        "n1:1:2 [0] NCCL INFO Channel 00 : 0[1a] -> 1[1a] [send] via NET/Socket/0\n"
        "n2:1:2 [0] NCCL INFO Channel 00 : 0[1a] -> 1[1a] [receive] via NET/Socket/0\n"
    )
    (finding,) = judge(report)
    assert "libibverbs1" in finding.remedy
    assert "NCCL_IB_HCA" not in finding.remedy
