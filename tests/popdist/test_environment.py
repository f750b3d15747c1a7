"""What an instance learns from its environment, and what popdist says of one that cannot be."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popdist
from popdist import BadEnvironment, BadUse, NotUniform
from tests.popdist.mpi import environment


def test_alone_a_program_is_instance_0_of_1() -> None:
    assert not popdist.isPopdistEnvSet()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex()) == (1, 0)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (1, 1)
    assert (popdist.getReplicaIndexOffset(), popdist.getLocalInstanceIndex()) == (0, 0)
    assert (popdist.getNumIpusPerReplica(), popdist.getDeviceId()) == (1, 0)
    assert popdist.shard(7) == slice(0, 7)


@pytest.fixture
def third_of_four(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Instance 2 of 4, two replicas of two devices each."""
    for name, value in environment(2, 2, 8).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2")
    monkeypatch.setenv("POPDIST_LOCAL_INSTANCE_INDEX", "1")
    return monkeypatch


@pytest.mark.usefixtures("third_of_four")
def test_one_of_several() -> None:
    assert popdist.isPopdistEnvSet()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex()) == (4, 2)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (8, 2)
    assert (popdist.getReplicaIndexOffset(), popdist.getLocalInstanceIndex()) == (4, 1)
    assert popdist.getNumIpusPerReplica() == 2
    assert popdist.checkNumIpusPerReplica(2)
    assert not popdist.checkNumIpusPerReplica(1)


def test_devices_have_the_ids_that_a_poprun_log_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for instance in range(4):
        for name, value in environment(instance, 1, 4).items():
            monkeypatch.setenv(name, value)
        found.append(popdist.getDeviceId(4))
    assert found == [24, 25, 26, 27]


def test_all_four_devices_of_a_machine_are_device_6() -> None:
    assert [popdist.getDeviceId(n) for n in (1, 2, 4)] == [0, 2, 6]
    with pytest.raises(BadUse, match="are not an aligned group"):
        popdist.getDeviceId(3)
    with pytest.raises(BadUse, match="0 or more"):
        popdist.getDeviceId(-1)


@pytest.mark.parametrize(
    ("name", "value", "call"),
    [
        ("POPDIST_NUM_TOTAL_REPLICAS", "eight", popdist.getNumTotalReplicas),
        ("POPDIST_NUM_TOTAL_REPLICAS", "0", popdist.getNumTotalReplicas),
        ("POPDIST_NUM_TOTAL_REPLICAS", "", popdist.getNumInstances),
        ("POPDIST_NUM_TOTAL_REPLICAS", "9" * 5000, popdist.getNumInstances),
        ("POPDIST_NUM_LOCAL_REPLICAS", "-1", popdist.getNumLocalReplicas),
        ("POPDIST_NUM_LOCAL_REPLICAS", "9", popdist.getNumLocalReplicas),
        ("POPDIST_NUM_LOCAL_REPLICAS", "2.0", popdist.getInstanceIndex),
        ("POPDIST_REPLICA_INDEX_OFFSET", "7", popdist.getReplicaIndexOffset),
        ("POPDIST_REPLICA_INDEX_OFFSET", "3", popdist.getInstanceIndex),
        ("POPDIST_REPLICA_INDEX_OFFSET", "٣", popdist.getReplicaIndexOffset),
        ("POPDIST_NUM_IPUS_PER_REPLICA", "0", popdist.getNumIpusPerReplica),
        ("POPDIST_LOCAL_INSTANCE_INDEX", "x", popdist.getLocalInstanceIndex),
        ("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "yes", popdist.getNumInstances),
    ],
)
def test_a_bad_value_is_named(
    third_of_four: pytest.MonkeyPatch, name: str, value: str, call: object
) -> None:
    assert callable(call)
    third_of_four.setenv(name, value)
    with pytest.raises(BadEnvironment) as caught:
        call()
    assert f"{name}={value}" in str(caught.value).replace("'", "")


@pytest.mark.parametrize(
    "name",
    [
        "POPDIST_NUM_LOCAL_REPLICAS",
        "POPDIST_REPLICA_INDEX_OFFSET",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE",
    ],
)
def test_a_missing_variable_is_named(third_of_four: pytest.MonkeyPatch, name: str) -> None:
    third_of_four.delenv(name)
    with pytest.raises(BadEnvironment, match=f"{name} is not set"):
        popdist.getInstanceIndex()


def test_instances_are_counted_only_where_they_are_alike(
    third_of_four: pytest.MonkeyPatch,
) -> None:
    third_of_four.setenv("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "0")
    for call in (popdist.getNumInstances, popdist.getInstanceIndex):
        with pytest.raises(NotUniform, match="different numbers of replicas"):
            call()
    assert popdist.getReplicaIndexOffset() == 4


def test_replicas_that_do_not_divide_are_not_uniform(third_of_four: pytest.MonkeyPatch) -> None:
    third_of_four.setenv("POPDIST_NUM_LOCAL_REPLICAS", "3")
    with pytest.raises(NotUniform, match="POPDIST_NUM_TOTAL_REPLICAS=8 is not a multiple"):
        popdist.getNumInstances()


@given(n=st.integers(0, 500), instances=st.integers(1, 9), local=st.integers(1, 5))
def test_shares_are_all_there_is_and_disjoint(n: int, instances: int, local: int) -> None:
    things = list(range(n))
    together: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        for instance in range(instances):
            for name, value in environment(instance, local, instances * local).items():
                patch.setenv(name, value)
            mine = things[popdist.shard(n)]
            replicas = range(instance * local, (instance + 1) * local)
            parts = [things[popdist.shard(n, replica)] for replica in replicas]
            assert [thing for part in parts for thing in part] == mine
            assert {len(part) for part in parts} <= {
                n // (instances * local),
                n // (instances * local) + 1,
            }
            together += mine
    assert together == things


@pytest.mark.parametrize(("n", "replica"), [(-1, None), (5, 1), (5, -1)])
def test_a_share_of_nothing_is_refused(n: int, replica: int | None) -> None:
    with pytest.raises(BadUse):
        popdist.shard(n, replica)


def test_importing_it_loads_nothing_else() -> None:
    script = (
        "import sys, popdist; popdist.init(); "
        "print(sorted({'numpy', 'mpi4py', 'podwright', 'asyncio'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_alone_collectives_need_no_mpi() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for result in (popdist.allReduceSum(values), popdist.broadcast(values, 0)):
        assert result is not values
        assert result.dtype == values.dtype
        np.testing.assert_array_equal(result, values)
    assert popdist.allGather(values).shape == (1, 2, 3)
    popdist.barrier()
    assert popdist.execute_on_instances({0}, max, 3, 4) == 4
    assert popdist.execute_on_instances([0], lambda *, x: x, x=5) == 5
    with pytest.raises(BadUse, match=r"\{0, 1\}.*some of \{0\}"):
        popdist.execute_on_instances({0, 1}, print)
    with pytest.raises(BadUse, match="some of"):
        popdist.execute_on_instances(set(), print)
    with pytest.raises(BadUse, match="instance 3 takes no part"):
        popdist.broadcast(values, 3)


@pytest.mark.parametrize("bad", ["text", [object()], np.array(["2026"], "M8[Y]")])
def test_only_numbers_are_summed(bad: object) -> None:
    with pytest.raises(BadUse, match="sums numbers, not"):
        popdist.allReduceSum(bad)


def test_one_of_several_must_join_first(third_of_four: pytest.MonkeyPatch) -> None:
    assert not popdist.isBackendInitialized()
    with pytest.raises(popdist.NotInitialized, match=r"popdist\.init\(\)"):
        popdist.barrier()
    assert popdist.execute_on_instances({2}, max, 1, 2) == 2
    assert popdist.execute_on_instances({0, 1, 3}, max, 1, 2) is None
