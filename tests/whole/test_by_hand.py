"""What the README tells a newcomer to type, word for word."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.whole.conftest import REPOSITORY, Pod

HEADS = ["Cluster", "Allocation", "Partition", "ILDs", "GW Routing", "ILD Routing"]
HEADS += ["Size", "GCDs", "State"]
TRAIN = REPOSITORY / "examples" / "train_digits.py"


def test_a_partition_by_hand_and_a_program_on_it(shared16: Pod) -> None:
    assert "create partition (p1): success." in shared16.good(
        "vipu", "create", "partition", "p1", "--size", "4"
    )
    lines = shared16.good("vipu", "list", "partitions").splitlines()
    assert [cell.strip() for cell in lines[0].split("|")] == HEADS
    assert set(lines[1]) <= set("-+|")
    assert lines[2].split("|")[2].strip() == "p1"
    assert "p1" in shared16.good("vipu", "get", "partition", "p1")
    config = json.loads(
        shared16.good("vipu", "get", "partition", "p1", "--gcd", "0", "--ipuof-configs")
    )
    assert len(config["devices"]) == 4

    ran = shared16.run(
        *("poprun", "--vipu-partition=p1", "--num-replicas=4", "--num-instances=2"),
        *("--print-topology=yes", "python3", TRAIN, "--epochs", "2"),
    )
    assert ran.code == 0, ran
    assert "poprun topology" in ran.out + ran.err
    assert "test accuracy" in ran.out
    assert "SIMULATED" in ran.err
    assert shared16.partitions()["p1"]["ready_state"] == "PS_ACTIVE", "poprun removes only its own"
    assert "success" in shared16.good("vipu", "reset", "partition", "p1")
    assert "success" in shared16.good("vipu", "remove", "partition", "p1")
    assert shared16.partitions() == {}


def test_the_guides_example_with_the_partition_found_and_with_it_created(
    make_pod: Callable[..., Pod],
) -> None:
    """PopRun guide 2.8.3: 32 replicas in 2 instances is 32 devices, 2 GCDs, 2 replicas, 2 ILDs."""
    pod = make_pod("--preset", "pod128")
    launch = (
        *("poprun", "--vipu-partition=my_partition", "--num-replicas=32", "--num-instances=2"),
        *("--num-ilds=2", "sh", "-c", "vipu list partitions --json; env | grep ^IPUOF_VIPU"),
    )
    created = pod.run(*launch)
    assert created.code == 0, created
    assert pod.partitions() == {}
    pod.good(
        *("vipu", "create", "partition", "my_partition", "--size", "32"),
        *("--num-gcds", "2", "--num-replicas", "2", "--num-ilds", "2"),
    )
    found = pod.run(*launch)
    assert found.code == 0, found
    assert list(pod.partitions()) == ["my_partition"]
    spec = pod.partitions()["my_partition"]["spec"]
    assert (spec["num_gcds"], spec["num_replicas"], len(spec["ipus"])) == (2, 2, 32)
    for ran in (created, found):
        assert '"num_ipulink_segments": 2' in ran.out
        for gcd in (0, 1):
            assert f"[1,{gcd}]<stdout>: IPUOF_VIPU_API_GCD_ID={gcd}" in ran.out
