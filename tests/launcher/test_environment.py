"""The variables of an instance that depend on the partition."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from podwright.errors import InvalidRequest
from podwright.launcher.options._instance_environment import (
    check_hosts,
    partition_environment,
    target_options,
    visible_gpus,
    whole_environment,
)
from podwright.wire import DeviceRef, GatewayRouting, PartitionInfo, Routing, SyncType


def gpus(*names: tuple[str, str, str]) -> PartitionInfo:
    """A partition of one GPU in each GCD: machine, address, chip id."""
    refs = [
        [DeviceRef(domain=0, offset=i, machine=machine, index=i, ip=ip, chip_id=chip)]
        for i, (machine, ip, chip) in enumerate(names)
    ]
    bare = partition(len(names), len(names), 1, Routing.DNC)
    return msgspec.structs.replace(bare, gcds=refs)


NVIDIA = "GPU-996ad860-2a9a-504f-8861-aeafd0b2ae29"
AMD = "GPU-4a10c0de00000002"


def test_gpus_are_named_by_the_variable_of_their_vendor() -> None:
    found = visible_gpus(gpus(("n1", "", NVIDIA), ("n1", "", NVIDIA)), 2)
    assert found == {
        "PODWRIGHT_GPUS": f"{NVIDIA};{NVIDIA}",
        "PODWRIGHT_GPUS_AS": "CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES",
    }
    assert visible_gpus(gpus(("n1", "", AMD)), 1)["PODWRIGHT_GPUS_AS"] == "ROCR_VISIBLE_DEVICES"
    assert visible_gpus(gpus(("n1", "", "SIM-n1-0")), 1) == {}
    assert visible_gpus(gpus(("n1", "", NVIDIA)), 2) == {}
    mig = gpus(("n1", "", "MIG-a"), ("n1", "", "MIG-b"))
    assert visible_gpus(mig, 2)["PODWRIGHT_GPUS"] == "MIG-a;MIG-b"
    together = msgspec.structs.replace(mig, gcds=[[d for gcd in mig.gcds for d in gcd]])
    with pytest.raises(InvalidRequest, match=r"several slices .*--num-instances 2 "):
        visible_gpus(together, 1)


def test_instances_run_where_their_gpus_are() -> None:
    here = os.uname().nodename
    spread = gpus(("n1", "10.1.0.1", NVIDIA), ("n2", "10.1.0.2", NVIDIA))
    check_hosts(spread, ["n1", "n2.example.com"])
    check_hosts(spread, ["10.1.0.1", "10.1.0.2"])
    check_hosts(gpus(("agent7", "127.0.0.1", NVIDIA)), [here])
    with pytest.raises(
        InvalidRequest,
        match=r"instance 0 is to run on 10.1.0.2, and its GPUs are in n1.*--host n1,n2",
    ):
        check_hosts(spread, ["10.1.0.2", "10.1.0.1"])


def partition(size: int, gcds: int, ilds: int, routing: Routing) -> PartitionInfo:
    return PartitionInfo(
        name="p1",
        cluster="c",
        allocation="a",
        size=size,
        num_gcds=gcds,
        num_replicas=gcds,
        num_ilds=ilds,
        routing=routing,
        gw_routing=GatewayRouting.DEFAULT,
        sync_type=SyncType.DEFAULT,
        simulated=True,
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (partition(4, 1, 1, Routing.DNC), ("4", "default", "mesh", "true", "4")),
        (partition(64, 1, 1, Routing.RINGSWNC), ("64", "slidingWindow", "torus", "true", "64")),
        (partition(32, 2, 2, Routing.SWNC), ("16", "slidingWindow", "mesh", "true", "16")),
    ],
)
def test_target_options_are_set_for_instances(
    given: PartitionInfo, wanted: tuple[str, ...]
) -> None:
    """The first two were observed in logs of PopRun."""
    names = ["ipuLinkDomainSize", "ipuLinkConfiguration", "ipuLinkTopology"]
    names += ["gatewayMode", "instanceSize"]
    assert json.loads(target_options(given)) == dict(zip(names, wanted, strict=True))


def test_target_options_of_the_caller_are_kept() -> None:
    given = partition(4, 1, 1, Routing.DNC)
    found = partition_environment(given, "h", "1", {"POPLAR_TARGET_OPTIONS": "{}"})
    assert found == {
        "IPUOF_VIPU_API_PARTITION_ID": "p1",
        "IPUOF_VIPU_API_HOST": "h",
        "IPUOF_VIPU_API_PORT": "1",
        "POPLAR_TARGET_OPTIONS": "{}",
        "PODWRIGHT_SIMULATED": "1",
    }


def test_instances_get_the_callers_environment_without_the_configuration_file() -> None:
    environ = {"A": "1", "B": "2", "IPUOF_CONFIG_PATH": "/x"}
    assert whole_environment(environ, (("B", "3"),), {"C": "4"}) == {"A": "1", "B": "3", "C": "4"}


def test_a_part_of_an_amd_socket_is_named_by_its_number() -> None:
    found = visible_gpus(gpus(*[("n1", "", f"{AMD}.{part}") for part in range(3)]), 3)
    assert found == {"PODWRIGHT_GPUS": "0;1;2", "PODWRIGHT_GPUS_AS": "ROCR_VISIBLE_DEVICES"}
