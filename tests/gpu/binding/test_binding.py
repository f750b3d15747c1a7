"""What a task sees, and how that is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import InvalidRequest
from podwright.gpu.binding import ProbedTask, Verdict, job_options, judge, read_tasks
from podwright.gpu.requests import parse_request
from podwright.hosts import Cores, CpuCore
from podwright.hosts.gpus import Gpu, near_cores, visible

GPUS = tuple(
    Gpu(
        index=n,
        vendor="nvidia",
        uuid=f"GPU-{n}aaa",
        name="x",
        type="h100",
        bus=f"0000:{n}b:00.0",
        memory=81559 << 20,
        node=n // 2,
        cpus="0-3" if n < 2 else "4-7",
        files=(f"/dev/nvidia{n}",),
    )
    for n in range(4)
)


def seen(value: str | None, *closed: int) -> list[int]:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    shut = {f"/dev/nvidia{n}" for n in closed}
    return [gpu.index for gpu in visible(environ, GPUS, shut.__contains__)]


def test_visible_numbers_count_only_gpus_that_can_be_opened() -> None:
    assert seen(None) == [0, 1, 2, 3]
    assert seen("") == []
    assert seen("2,0") == [2, 0]
    assert seen("0", 0, 1, 2) == [3]
    assert seen("0,1", 0, 2) == [1, 3]
    assert seen("GPU-2a,GPU-0") == [2, 0]
    assert seen("1,9,2") == [1]
    assert seen("GPU-,0") == []


def test_a_file_that_permissions_shut_is_no_gpu(tmp_path: Path) -> None:
    from podwright.hosts.gpus._visible_gpus import shut

    assert not shut(str(tmp_path / "none"))
    (tmp_path / "open").touch()
    assert not shut(str(tmp_path / "open"))


def test_cores_near_a_gpu_are_those_of_its_numa_node() -> None:
    cores = Cores(tuple(CpuCore(n // 4, n // 4, (n,)) for n in range(8)), (0, 1))
    assert [c.cpus[0] for c in near_cores(GPUS[2:3], cores)] == [4, 5, 6, 7]
    unknown = [Gpu(0, "nvidia", "", "", "", "", 0, node=0)]
    assert [c.cpus[0] for c in near_cores(unknown, cores)] == [0, 1, 2, 3]
    lost = [Gpu(0, "nvidia", "", "", "", "", 0)]
    assert near_cores(lost, cores) == cores.cores


def task(rank: int, gpus: list[int], cpus: str = "0-3", node: str = "n1") -> str:
    rows = [
        {
            "number": gpu.index,
            "uuid": gpu.uuid,
            "bus": gpu.bus,
            "type": gpu.type,
            "memory": gpu.memory,
            "numa": gpu.node,
            "near": gpu.cpus,
        }
        for gpu in (GPUS[n] for n in gpus)
    ]
    body = {
        "rank": rank,
        "local_rank": rank,
        "node": node,
        "variable": ",".join(map(str, gpus)),
        "on_node": "4",
        "cpus": cpus,
        "all_cpus": 8,
        "simulated": False,
        "notes": [],
        "gpus": rows,
    }
    return f"podwright-binding {json.dumps(body)}\n"


_SHARED = "shared, partly, as asked"


def verdicts(options: str, *lines: str) -> list[str]:
    found = judge(read_tasks("noise\n" + "".join(lines)), parse_request(options.split()))
    return [f"{'!' if found[r].bad else ''}{found[r]}" for r in sorted(found)]


@pytest.mark.parametrize(
    ("options", "lines", "said"),
    [
        ("--gpus-per-task=1 -n2", [task(0, [0]), task(1, [1])], "distinct, near, as asked"),
        ("--gpus-per-task=1 -n2", [task(0, [0]), task(1, [0])], "!shared, near, asked for its own"),
        ("--gres=gpu:4 -n1", [task(0, [0, 1, 2, 3], "0-7")], "distinct, near, as asked"),
        ("--gres=gpu:4 -n2", [task(n, [0, 1, 2, 3], "0-3") for n in (0, 1)], _SHARED),
        ("--gres=gpu:4 -n1", [task(0, [0, 1, 2, 3])], "distinct, partly, as asked"),
        ("--gres=gpu:4 -n1", [task(0, [0])], "!distinct, near, asked for 4"),
        ("--gpus-per-task=2 -n1", [task(0, [0])], "!distinct, near, asked for 2"),
        ("--gpus=1 --gpu-bind=single:1", [task(0, [2])], "distinct, far, as asked"),
        ("--gpus=1 --gpu-bind=closest", [task(0, [2], "0-7")], "distinct, unbound, as asked"),
        ("--gpus=1", [task(0, [])], "!none, asked for 4"),
        ("-n1", [task(0, [])], "none"),
        ("-n1", [task(0, [0])], "!distinct, near, none were asked for"),
        ("--gres=gpu:a100:4", [task(0, [0, 1, 2, 3], "0-7")], "!distinct, near, asked for a100"),
    ],
)
def test_each_binding_gets_its_verdict(options: str, lines: list[str], said: str) -> None:
    assert verdicts(options, *lines)[0] == said


def test_the_same_number_on_another_node_is_another_gpu() -> None:
    far = task(1, [0], node="n2").replace("GPU-0aaa", "GPU-9")
    assert verdicts("--gpus-per-task=1 -n2", task(0, [0]), far) == ["distinct, near, as asked"] * 2


def test_without_a_library_numbers_are_told() -> None:
    line = task(0, [1]).replace(json.dumps(task_gpus(task(0, [1]))), "[]")
    (found,) = read_tasks(line)
    assert [gpu.number for gpu in found.gpus] == [1]
    assert judge([found], parse_request(["--gpus-per-task=1", "-n1"])) == {
        0: Verdict("distinct", "unknown", "as asked", False)
    }
    assert isinstance(found, ProbedTask)


def task_gpus(line: str) -> Any:
    return json.loads(line.partition(" ")[2])["gpus"]


def test_options_of_sbatch_become_those_of_salloc() -> None:
    words = "-N 2 --gpus-per-task=1 -n4 --exclusive -J x --output=o --wrap true --array=1-3"
    kept, left = job_options(words.split())
    assert kept == ["--nodes=2", "--gpus-per-task=1", "--ntasks=4", "--exclusive", "--job-name=x"]
    assert left == ["--output", "--wrap", "--array"]
    with pytest.raises(InvalidRequest, match="no option --gpu-per-task"):
        job_options(["--gpu-per-task=1"])


def test_the_probe_says_what_it_sees(tmp_path: Path) -> None:
    toml = tmp_path / "gpus.toml"
    toml.write_text("gpus = 4\nnuma_nodes = 2\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "podwright.gpu.binding._task_probe"],
        env={
            "PODWRIGHT_STANDIN_NVML": str(toml),
            "CUDA_VISIBLE_DEVICES": "3,1",
            "SLURM_PROCID": "5",
            "SLURMD_NODENAME": "n7",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    (found,) = read_tasks(done.stdout)
    assert (found.rank, found.node, found.simulated) == (5, "n7", True)
    assert [(gpu.number, gpu.numa) for gpu in found.gpus] == [(3, 1), (1, 0)]
    assert all(gpu.uuid.startswith("GPU-") for gpu in found.gpus)
