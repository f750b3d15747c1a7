"""What depends on the partition in an instance's environment."""

from __future__ import annotations

import json

import pytest

from podwright.launch._environment import (
    partition_environment,
    target_options,
    whole_environment,
)
from podwright.wire import GatewayRouting, PartitionInfo, Routing, SyncType


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
def test_target_options(given: PartitionInfo, wanted: tuple[str, ...]) -> None:
    """The first two were seen in logs of PopRun."""
    names = ["ipuLinkDomainSize", "ipuLinkConfiguration", "ipuLinkTopology"]
    names += ["gatewayMode", "instanceSize"]
    assert json.loads(target_options(given)) == dict(zip(names, wanted, strict=True))


def test_the_callers_target_options_stand() -> None:
    given = partition(4, 1, 1, Routing.DNC)
    found = partition_environment(given, "h", "1", {"POPLAR_TARGET_OPTIONS": "{}"})
    assert found == {
        "IPUOF_VIPU_API_PARTITION_ID": "p1",
        "IPUOF_VIPU_API_HOST": "h",
        "IPUOF_VIPU_API_PORT": "1",
        "POPLAR_TARGET_OPTIONS": "{}",
        "PODWRIGHT_SIMULATED": "1",
    }


def test_everything_of_the_caller_but_the_configuration_file() -> None:
    environ = {"A": "1", "B": "2", "IPUOF_CONFIG_PATH": "/x"}
    assert whole_environment(environ, (("B", "3"),), {"C": "4"}) == {"A": "1", "B": "3", "C": "4"}
