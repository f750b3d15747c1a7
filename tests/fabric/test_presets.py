"""Presets and the facts of the IPU family."""

from __future__ import annotations

import pytest

from podwright.fabric import (
    FAMILIES,
    IPU,
    Attachment,
    ClusterTopology,
    DomainTopology,
    family_named,
    preset,
    presets,
    simulated_ipus,
)

PODS = ["pod4", "pod8", "pod16", "pod32", "pod64", "pod128", "pod256"]


@pytest.mark.parametrize("name", PODS)
def test_a_preset_has_the_size_in_its_name(name: str) -> None:
    cluster = preset(name)
    size = int(name.removeprefix("pod"))
    machines = [m.name for domain in cluster.domains for m in domain.machines]
    assert cluster.name == name
    assert cluster.size == size
    assert cluster.simulated
    assert machines == [f"ag{i + 1}" for i in range(size // 4)]
    assert all(cluster.domain_size(d) == min(size, 64) for d in range(len(cluster.domains)))
    assert (cluster.topology is ClusterTopology.LOOPED) == (size > 64)
    assert (cluster.domain_topology is DomainTopology.TORUS) == (size >= 64)


def test_presets_are_pods_and_gpus() -> None:
    assert presets() == [*PODS, "hgx8", "hgx8x4", "nvl72"]


@pytest.mark.parametrize(("name", "machines", "size"), [("hgx8", 1, 8), ("nvl72", 18, 72)])
def test_gpus(name: str, machines: int, size: int) -> None:
    cluster = preset(name)
    (domain,) = cluster.domains
    assert (len(domain.machines), cluster.size) == (machines, size)
    assert cluster.family is FAMILIES[name]
    assert cluster.family.attachment is Attachment.HOST
    assert cluster.topology is ClusterTopology.NONE


def test_machines_of_any_number_of_gpus_are_families() -> None:
    assert [f and f.devices_per_machine for f in map(family_named, ("gpu1", "gpu2", "gpu16"))] == [
        1,
        2,
        16,
    ]
    assert [family_named(name) for name in ("gpu0", "gpu01", "gpu", "gpux", "gpu65", "")] == [
        None
    ] * 6
    assert family_named("ipu") is IPU


def test_chassis_of_any_number_of_devices_are_families() -> None:
    pool = family_named("pool16")
    assert pool is not None
    assert (pool.attachment, pool.device_noun) == (Attachment.POOL, "device")
    assert pool.sizes(16) == tuple(range(1, 17))
    assert [family_named(name) for name in ("pool", "pool0", "pool65", "pool1x")] == [None] * 4


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no preset 'pod5'; there are: pod4, .*nvl72"):
        preset("pod5")


@pytest.mark.parametrize("size", [0, -4, 3, 66, 96])
def test_a_pod_has_whole_machines_and_whole_link_domains(size: int) -> None:
    with pytest.raises(ValueError, match="is not a size of a pod"):
        simulated_ipus("x", size)


def test_a_device_is_found_in_its_machine() -> None:
    cluster = preset("pod128")
    assert cluster.machine_of(1, 5).name == "ag18"
    with pytest.raises(IndexError):
        cluster.machine_of(1, 64)


def test_the_ipu_family_is_what_the_guides_say() -> None:
    assert FAMILIES["ipu"] is IPU
    assert IPU.attachment is Attachment.FABRIC
    assert IPU.partition_sizes_in_domain == (1, 2, 4, 8, 16, 32, 64)
    assert IPU.max_domain_devices == 64
