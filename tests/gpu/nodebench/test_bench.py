"""Rates are measured over a real connection, and what steps say becomes names, a table, changes."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.gpu.nodebench import bench, changes, keep, rates
from podwright.gpu.nodebench._bench import read_step
from podwright.gpu.nodebench._expected_rates import expected
from podwright.gpu.nodebench._measures import (
    Meeting,
    pair_tcp,
    pair_torch,
    read_nccl_tests,
    within,
)
from podwright.gpu.nodebench._rank import ANSWER_LINE_PREFIX, PORT_DISTANCE, TOKEN
from podwright.gpu.nodebench._rank import main as rank
from tests.ports import free_ports, free_row

NODES = [f"n{k}" for k in range(1, 9)]


def test_two_ends_measure_the_way_between_them() -> None:
    (port,) = free_ports(1)
    token = secrets.token_bytes(32)
    found: dict[bool, float] = {}

    def side(listens: bool) -> None:
        found[listens] = pair_tcp(Meeting("127.0.0.1", port, token, listens, 0.3))

    ends = [threading.Thread(target=side, args=(listens,)) for listens in (True, False)]
    ends[0].start()
    # A stranger who is there first is not answered, and keeps nobody waiting for long.
    while True:
        try:
            stranger = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            continue
    stranger.sendall(b"x" * 32)
    ends[1].start()
    for end in ends:
        end.join()
    assert stranger.recv(1) == b""
    stranger.close()
    assert found[True] > 0.01
    assert found[True] == pytest.approx(found[False], rel=1e-6)


def test_each_gpu_meets_its_counterpart(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two GPUs of each of two nodes, all at once: four processes on one machine."""
    port = free_row(2, PORT_DISTANCE)
    monkeypatch.setenv(TOKEN, secrets.token_hex(32))
    task = {"way": "tcp", "rails": 2, "port": port, "seconds": 0.3}
    own = [sys.executable, "-P", "-m", "podwright.gpu.nodebench._rank"]
    words = json.dumps({**task, "pairs": [["127.0.0.1", "n2"]]})
    other = subprocess.Popen(
        [*own, words], env={**os.environ, "SLURMD_NODENAME": "n2"}, stdout=subprocess.PIPE
    )
    monkeypatch.setenv("SLURMD_NODENAME", "127.0.0.1")
    assert rank({**task, "pairs": [["127.0.0.1", "n2"]]}) == 0
    ours = read_step(capfd.readouterr().out)["127.0.0.1"]
    theirs = read_step(other.communicate()[0].decode())["n2"]
    assert ours["rails"] == pytest.approx(theirs["rails"], rel=1e-6)
    assert isinstance(ours["rails"], list)
    assert len(ours["rails"]) == 2
    assert ours["rate"] == min(ours["rails"])


def test_inside_a_node_without_gpus() -> None:
    assert within(0, 0.1, {"PATH": ""})["memory copy"] > 0.1


def test_nccl_tests_are_read() -> None:
    text = "#  size  count\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 361.25 \n#\n"
    assert read_nccl_tests(text) == 8 * 361.25
    assert read_nccl_tests("no such device") is None


@pytest.mark.parametrize("gpus", [0, 8])
def test_torch_is_asked_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    """Its names alone, in place of its gigabytes; the numbers come from the clock."""
    asked: list[str] = []
    given: list[object] = []

    class Tensor:
        device, value = "cpu", 1.0

        def fill_(self, value: float) -> Tensor:
            self.value = value
            return self

        def item(self) -> float:
            return self.value

    def note(name: str) -> Callable[..., None]:
        def noted(*words: object, **options: object) -> None:
            asked.append(name)
            given.extend(word for word in words if not isinstance(word, Tensor))

        return noted

    calls = ("init_process_group", "all_reduce", "broadcast", "destroy_process_group")
    dist = types.SimpleNamespace(**{name: note(name) for name in calls})
    cuda = types.SimpleNamespace(
        is_available=lambda: gpus > 0, **{k: note(k) for k in ("set_device", "synchronize")}
    )

    def ones(count: int, device: str) -> Tensor:
        given.append(device)
        return Tensor()

    torch = types.SimpleNamespace(cuda=cuda, distributed=dist, ones=ones)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    assert pair_torch(Meeting("h", 1, b"", True, 0.05, gpu=5)) > 0
    assert given[:3] == ([5, "nccl", "cuda:5"] if gpus else ["gloo", "cpu", "cpu"])
    assert asked[bool(gpus)] == "init_process_group"
    assert asked[-1] == "destroy_process_group"
    assert asked.count("all_reduce") == asked.count("broadcast") + 1


def fake(slow: str = "", memory: Mapping[str, Sequence[float]] | None = None) -> object:
    """A step in which pairs with `slow` do 30, others 100. memory: first and second rate."""
    asked: dict[str, int] = {}

    def step(nodes: Sequence[str], task: Mapping[str, object]) -> dict[str, dict[str, object]]:
        out: dict[str, dict[str, object]] = {}
        pairs = task["pairs"]
        assert isinstance(pairs, list | tuple)
        for node in nodes:
            if not pairs:
                rate = (memory or {}).get(node, (80.0, 80.0))[asked.get(node, 0)]
                asked[node] = 1
                out[node] = {"node": node, "within": {"memory copy": rate}}
            else:
                pair = next(pair for pair in pairs if node in pair)
                out[node] = {"node": node, "rate": 30.0 if slow in pair else 100.0}
        return out

    return step


def test_a_slow_node_is_named(tmp_path: Path) -> None:
    said: list[str] = []
    found = bench(NODES, fake("n5"), report_progress=said.append)  # type: ignore[arg-type]
    assert [(slow.part, slow.rate, slow.reference) for slow in found.slow] == [("n5", 30, 100)]
    assert len(found.rounds) <= 6
    assert said[0] == "8 nodes by themselves"
    now = rates(found)
    assert now["n5"] == {"memory copy": 80, "between nodes (tcp)": 30}
    path = tmp_path / "kept" / "bench.jsonl"
    assert changes(path, now) == []
    keep(path, rates(bench(NODES, fake("none"))), 1.0)  # type: ignore[arg-type]
    bad_lines = [
        "cut off {",
        '{"nodes": []}',
        '{"nodes": {"n5": 1}}',
        '{"nodes": {"n5": {"a": "b"}}}',
    ]
    path.write_text("\n".join([path.read_text().strip(), *bad_lines, ""]))
    (change,) = changes(path, now)
    assert (change.node, change.now, change.before) == ("n5", 30, 100)


def test_the_gpu_whose_way_is_slow_is_named() -> None:
    """One adapter of eight is slow: all others hide it from an average, and none from its own."""
    tasks: list[Mapping[str, object]] = []

    def step(nodes: Sequence[str], task: Mapping[str, object]) -> dict[str, dict[str, object]]:
        tasks.append(task)
        pairs = task["pairs"]
        assert isinstance(pairs, list | tuple)
        if not pairs:
            return {node: {"gpus": ["H100"] * 8, "within": {}} for node in nodes}
        out: dict[str, dict[str, object]] = {}
        for pair in pairs:
            rails = [380.0] * 5 + [90.0 if "n3" in pair else 380.0] + [380.0] * 2
            out |= {node: {"rate": min(rails), "rails": rails} for node in pair}
        return out

    found = bench(NODES, step, transport="torch")
    assert {task.get("rails") for task in tasks} == {None, 8}
    assert [(one.part, one.what, one.rate) for one in found.slow] == [
        ("n3", "to other nodes, by GPU 5", 90.0)
    ]
    tasks.clear()
    bench(NODES, step, transport="tcp")
    assert {task.get("rails") for task in tasks} == {None, 1}


def test_a_loaded_node_is_named_and_noise_is_not() -> None:
    memory = {"n2": (20.0, 22.0), "n7": (30.0, 79.0)}
    found = bench(NODES, fake("none", memory))  # type: ignore[arg-type]
    assert [(slow.part, slow.what, slow.rate) for slow in found.slow] == [
        ("n2", "memory copy", 22.0)
    ]


def test_what_went_wrong_is_told() -> None:
    good = fake("none")

    def step(nodes: Sequence[str], task: Mapping[str, object]) -> dict[str, dict[str, object]]:
        said = good(nodes, task)  # type: ignore[operator]
        if "n3" in said:
            said["n3"] = {"node": "n3", "error": "OSError: no route to host"}
        return dict(said)

    found = bench(NODES, step)
    assert found.errors["n3"] == "OSError: no route to host"
    assert [slow.part for slow in found.slow] == ["n3"]


def test_a_steps_words_are_read_between_others() -> None:
    text = f"module loaded\n0: {ANSWER_LINE_PREFIX}{json.dumps({'node': 'n1', 'rate': 5})}\nbye\n"
    assert read_step(text) == {"n1": {"node": "n1", "rate": 5}}


def test_the_plan_can_be_seen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["node", "bench", "--dry-run", "--nodelist=n[1-8]", "--partition=gpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("salloc --exclusive --time=15 --job-name=podwright-bench")
    assert "--partition=gpu" in out
    assert "8 nodes: each by itself, then at most 6 rounds of pairs." in out
    assert main(["node", "bench"]) == 2
    assert "no nodes are named. Add --nodes=8" in capsys.readouterr().err


def test_gpus_are_held_against_their_data_sheet() -> None:
    """Two nodes: no majority that could be slow or fast. What is slow is so by the sheet."""
    h100 = ["NVIDIA H100 80GB HBM3"] * 8
    good = {"host to GPU": 430.0, "GPU to GPU": 3000.0, "all-reduce": 2900.0, "memory copy": 80.0}
    bad = {**good, "host to GPU": 210.0, "all-reduce": 900.0}
    said: dict[str, dict[str, object]]
    said = {"n1": {"gpus": h100, "within": good}, "n2": {"gpus": h100, "within": bad}}
    found = bench(["n1", "n2"], lambda nodes, task: {n: said[n] for n in nodes}, transport="")
    assert found.rounds == ()
    assert [(one.part, one.what) for one in found.slow] == [
        ("n2", "host to GPU"),
        ("n2", "all-reduce"),
    ]
    assert found.slow[0].reference == pytest.approx(0.8 * 504)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("NVIDIA H100 80GB HBM3", (403.2, 2880, 2880)),
        ("NVIDIA H200", (403.2, 2880, 2880)),
        ("NVIDIA H100 PCIe", (403.2, None, None)),
        ("NVIDIA H200 NVL", (403.2, None, None)),
        ("NVIDIA B200", (403.2, 5760, 5760)),
        ("NVIDIA GB200", (None, None, None)),
        ("NVIDIA A100-SXM4-80GB", (201.6, 1920, 1920)),
        ("NVIDIA A100-PCIE-40GB", (201.6, None, None)),
        ("Tesla V100-SXM2-32GB", (100.8, None, 960)),
        ("NVIDIA L40S", (201.6, None, None)),
        ("Tesla T4", (100.8, None, None)),
        ("AMD Instinct MI300X", (403.2, 409.6, 2867.2)),
        ("a GPU of next year", (None, None, None)),
    ],
)
def test_what_a_gpu_should_do(name: str, rates: tuple[float | None, ...]) -> None:
    found = expected(name, 8)
    assert tuple(
        found.get(kind) for kind in ("host to GPU", "GPU to GPU", "all-reduce")
    ) == pytest.approx(rates)
    assert set(expected(name, 1)) <= {"host to GPU", "GPU to host"}
