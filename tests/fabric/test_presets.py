"""Presets and the facts of the IPU family."""

from __future__ import annotations

import pytest

from podwright.fabric import (
    FAMILIES,
    IPU,
    Attachment,
    ClusterTopology,
    DomainTopology,
    preset,
    presets,
    simulated_ipus,
)


@pytest.mark.parametrize("name", presets())
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


def test_presets_run_from_pod4_to_pod256() -> None:
    assert presets() == ["pod4", "pod8", "pod16", "pod32", "pod64", "pod128", "pod256"]


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no preset 'pod5'; there are: pod4, .*pod256"):
        preset("pod5")


@pytest.mark.parametrize("size", [0, -4, 3, 66, 96])
def test_a_pod_has_whole_machines_and_whole_link_domains(size: int) -> None:
    with pytest.raises(ValueError, match="no size of a pod"):
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
