"""The cores that instances get on hosts of many kinds, and in reality on this one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.hosts import Cores, cores_of_xml, read_list, write_list
from podwright.launcher import make_plan, parse, places_instances
from podwright.launcher.instances import _bind_exec, _instance_binding
from podwright.launcher.options._core_placement import PLACEMENT_STRATEGIES, places
from tests.hosts.topologies import xml
from tests.launcher.conftest import Launcher


def host(sockets: int, nodes: int, cores: int | list[int], threads: int = 1) -> Cores:
    found = cores_of_xml(xml(sockets, nodes, cores, threads))
    assert found is not None
    return found


def spread(strategy: str, on: Cores, instances: int) -> list[str]:
    """Return for each instance: its hardware threads @ its NUMA nodes."""
    return [
        f"{write_list(place.cpus)}@{write_list(place.nodes)}"
        for place in places(strategy, on, instances)
    ]


TWO = host(2, 1, 4)
TWO_SMT = host(2, 1, 4, threads=2)
EIGHT = host(2, 4, 2)


@pytest.mark.parametrize(
    ("strategy", "on", "instances", "wanted"),
    [
        ("spreadnuma", TWO, 2, ["0-3@0", "4-7@1"]),
        ("spreadnuma", TWO_SMT, 2, ["0-3,8-11@0", "4-7,12-15@1"]),
        ("spreadnuma", TWO, 4, ["0-3@0", "0-3@0", "4-7@1", "4-7@1"]),
        ("spreadnuma", TWO, 3, ["0-3@0", "0-3@0", "4-7@1"]),
        ("spreadnuma", EIGHT, 2, ["0-7@0-3", "8-15@4-7"]),
        ("spreadnuma", EIGHT, 3, ["0-3@0-1", "4-9@2-4", "10-15@5-7"]),
        ("spreadnuma", host(1, 3, [1, 2, 5]), 2, ["0@0", "1-7@1-2"]),
        ("close", TWO, 3, ["0@0", "1@0", "2@0"]),
        ("close", TWO_SMT, 2, ["0,8@0", "1,9@0"]),
        ("close", host(1, 1, 2), 3, ["0@0", "1@0", "0@0"]),
        ("scattersocket", TWO, 3, ["0@0", "4@1", "1@0"]),
        ("scattersocket", EIGHT, 4, ["0@0", "8@4", "1@0", "9@4"]),
        ("scatternuma", EIGHT, 10, ["0@0", "2@1", "4@2", "6@3", "8@4", "10@5", "12@6", "14@7",
                                    "1@0", "3@1"]),
        ("scatternuma", host(2, 1, [1, 3]), 4, ["0@0", "1@1", "2@1", "3@1"]),
        ("scattersocket", TWO_SMT, 2, ["0,8@0", "4,12@1"]),
    ],
)  # fmt: skip
def test_each_strategy_places_instances_as_described(
    strategy: str, on: Cores, instances: int, wanted: list[str]
) -> None:
    assert spread(strategy, on, instances) == wanted


@pytest.mark.parametrize("strategy", PLACEMENT_STRATEGIES[:-1])
@pytest.mark.parametrize("instances", [1, 2, 5, 8, 64])
def test_every_instance_has_a_place_on_the_host(strategy: str, instances: int) -> None:
    inside = EIGHT.within({1, 2, 3, 9}, {0, 4})
    found = places(strategy, inside, instances)
    assert len(found) == instances
    for place in found:
        assert place.cpus
        assert set(place.cpus) <= {1, 2, 3, 9}
        assert set(place.nodes) <= {0, 4}
    used = {cpu for place in found for cpu in place.cpus}
    assert used == {1, 2, 3, 9} or instances < 4


def test_an_instance_with_all_cores_is_not_bound() -> None:
    assert [place.bound for place in places("spreadnuma", TWO, 1)] == [False]
    assert [place.bound for place in places("spreadnuma", host(1, 1, 4), 3)] == [False] * 3
    assert [place.bound for place in places("close", TWO, 1)] == [True]


def test_the_plan_shows_the_places() -> None:
    plan = make_plan(parse(["--num-replicas=2", "--num-instances=2", "t"]), {}, cores=TWO_SMT)
    said = "instance 0: 4 cores (CPU 0-3,8-11), NUMA node 0, its memory first"
    assert said in str(plan)
    assert said in plan.topology(1)
    assert [dict(i.environment)["PODWRIGHT_CPUS"] for i in plan.instances] == [
        "0-3,8-11",
        "4-7,12-15",
    ]
    assert [dict(i.environment)["PODWRIGHT_NUMA_NODES"] for i in plan.instances] == ["0", "1"]


@pytest.mark.parametrize(
    ("line", "placed", "note"),
    [
        ("", True, ""),
        ("--process-placement=disabled", False, ""),
        ("--numa-aware=yes", True, "--numa-aware is deprecated; write --process-placement spread"),
        ("--numa-aware 0", False, "--numa-aware is deprecated; write --process-placement disabled"),
        ("--numa-aware=no --process-placement=close", True, "write --process-placement close"),
        ("--mpi-global-args='--bind-to core'", False, "--bind-to in --mpi-global-args places"),
        ("--mpi-global-args=--map-by=socket --process-placement disabled", False, ""),
    ],
)
def test_options_decide_whether_poprun_or_mpirun_places(line: str, placed: bool, note: str) -> None:
    options = parse([*shlex.split(line), "--num-replicas=2", "--num-instances=2", "t"])
    assert places_instances(options) is placed
    plan = make_plan(options, {}, cores=TWO)
    assert all(bool(instance.place) is placed for instance in plan.instances)
    assert any(note in text for text in plan.notes) or not note


def test_poprun_and_mpirun_cannot_both_place() -> None:
    line = ["--process-placement=close", "--mpi-global-args=--bind-to core", "--num-replicas=2"]
    with pytest.raises(InvalidRequest, match="both place processes"):
        make_plan(parse([*line, "t"]), {})
    with pytest.raises(InvalidRequest, match="spreadnuma, scattersocket, scatternuma, close or"):
        parse(["--process-placement=far", "t"])


def test_real_instances_run_on_their_cores(launcher: Launcher) -> None:
    """Each instance runs where the plan says, and stays inside what poprun itself may use."""
    cpus = sorted(os.sched_getaffinity(0))
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    words = ("--num-replicas=3", "--num-instances=3", "--process-placement=close")
    ran = launcher.run(*words, sys.executable, "-c", program)
    assert ran.code == 0, ran
    assert sorted(ran.out.splitlines()) == [
        f"[1,{i}]<stdout>: [{cpus[i % len(cpus)]}]" for i in range(3)
    ]


#: Prints on which cores it runs, and which it was told.
_TWO = "import os; print(sorted(os.sched_getaffinity(0)), os.environ.get('PODWRIGHT_CPUS'))"


def _said_by_two() -> list[str]:
    """Return the output of two instances close to each other. With only one core there is no
    binding.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return [f"[{cpus[0]}] None"] * 2
    return sorted(f"[{cpu}] {cpu}" for cpu in cpus[:2])


def test_instances_keep_to_their_cores_without_taskset_too(launcher: Launcher) -> None:
    folder = launcher.folder / "bin"
    folder.mkdir()
    for name in ("mpirun", "prte", "sh"):
        found = next(
            f"{path}/{name}"
            for path in (os.path.dirname(sys.executable), "/bin", "/usr/bin")
            if os.access(f"{path}/{name}", os.X_OK)
        )
        (folder / name).symlink_to(found)
    words = ("--num-replicas=2", "--num-instances=2", "--process-placement=close")
    ran = launcher.run(*words, sys.executable, "-c", _TWO, PATH=str(folder))
    assert ran.code == 0, ran
    assert sorted(line.partition(": ")[2] for line in ran.out.splitlines()) == _said_by_two(), ran


def test_each_of_several_hosts_places_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_instance_binding, "read_cores", lambda environ: TWO)
    found = _instance_binding.bind({4: {"A": "1"}, 5: {}}, "spreadnuma", os.environ)
    assert found[4].variables == {"A": "1", "PODWRIGHT_CPUS": "0-3", "PODWRIGHT_NUMA_NODES": "0"}
    assert [own.words[-2:] for own in found.values()] == [("0-3", "0"), ("4-7", "1")]
    for ranks, how in (([6], "spreadnuma"), ([7, 8], "disabled")):
        alone = _instance_binding.bind({rank: {} for rank in ranks}, how, os.environ)
        assert all(own == ({}, ()) for own in alone.values())


@pytest.mark.parametrize(
    ("host", "strategy", "instances", "memory"),
    [
        (TWO, "spreadnuma", 2, [(0,), (1,)]),
        (TWO, "spreadnuma", 4, [(0,), (0,), (1,), (1,)]),
        (TWO, "spreadnuma", 1, [()]),
        (TWO, "scatternuma", 2, [(0,), (1,)]),
        (host(2, 4, 1), "spreadnuma", 2, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (host(2, 4, 1), "spreadnuma", 3, [(0, 1), (2, 3, 4), (5, 6, 7)]),
        (host(1, 1, 4), "close", 2, [(), ()]),
        # A node of memory alone is taken from once the near one is full.
        (host(1, 1, 4)._replace(memory=(0, 1)), "close", 1, [(0,)]),
        # What may be used is bounded by the cpuset around poprun.
        (EIGHT._replace(memory=(1, 2)), "spreadnuma", 4, [(1,), (2,), (), ()]),
    ],
)
def test_memory_of_the_nodes_near_by_comes_first(
    host: Cores, strategy: str, instances: int, memory: list[tuple[int, ...]]
) -> None:
    assert [place.memory for place in places(strategy, host, instances)] == memory


#: Prints a process's memory policy and its nodes, by get_mempolicy(2), and its affinity.
_POLICY = """
import ctypes, os
number = {"x86_64": 239, "aarch64": 236, "riscv64": 236, "ppc64le": 260, "s390x": 268}
mode, mask = ctypes.c_int(), (ctypes.c_uint64 * 16)()
call = ctypes.CDLL(None, use_errno=True).syscall
failed = call(ctypes.c_long(number[os.uname().machine]), ctypes.byref(mode), mask,
              ctypes.c_ulong(1025), None, 0)
nodes = [n for n in range(1024) if mask[n // 64] >> n % 64 & 1]
print(failed, mode.value, nodes, sorted(os.sched_getaffinity(0)))
"""


def test_the_kernel_is_told_of_the_memory(tmp_path: Path) -> None:
    """On a real node of this machine, the policy outlives the exec that starts the program."""
    allowed = Path("/proc/self/status").read_text().partition("Mems_allowed_list:")[2].split()[0]
    node = read_list(allowed)[0]
    cpu = min(os.sched_getaffinity(0))
    words = [sys.executable, "-I", "-S", _bind_exec.__file__, str(cpu), str(node)]
    ran = subprocess.run(
        [*words, sys.executable, "-c", _POLICY], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split(maxsplit=2)[0] == "0", ran
    mode, nodes = ran.stdout.split(maxsplit=2)[1:]
    assert int(mode) in (_bind_exec.MPOL_PREFERRED, _bind_exec.MPOL_PREFERRED_MANY)
    assert nodes.strip() == f"[{node}] [{cpu}]"


def test_a_program_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    words = [sys.executable, "-I", "-S", _bind_exec.__file__, "", ""]
    ran = subprocess.run([*words, missing], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (127, f"{missing}: No such file or directory\n")
    ran = subprocess.run([*words, "/etc/passwd"], capture_output=True, text=True, check=False)
    assert ran.returncode == 126


def test_instances_run_on_a_host_with_two_names(launcher: Launcher) -> None:
    words = ("--num-replicas=2", "--num-instances=2", "--process-placement=close")
    hosts = ("--host", f"localhost,{os.uname().nodename}", "--launcher=local")
    ran = launcher.run(*words, *hosts, sys.executable, "-c", _TWO)
    assert ran.code == 0, ran
    assert sorted(line.partition(": ")[2] for line in ran.out.splitlines()) == _said_by_two(), ran
    launcher.leaves_nothing()
