"""Each way is installed on a site with scripts of its own, and removed byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podwright.client import Client, FakeTransport
from podwright.errors import InvalidRequest
from podwright.guests.slurm.service import Fixed, Mapped, Site, SlurmPod, dump, load
from podwright.guests.slurm.setup import NativePlaces, mapping, native, shared, shelf, undo
from podwright.slurm.site.conf_lines import settings
from podwright.slurm.site.file_changes import as_diff, carry_out
from podwright.wire import (
    ClusterInfo,
    ClusterList,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    GatewayRouting,
    PartitionInfo,
    PartitionList,
    Routing,
    SyncType,
    Value,
)
from tests.slurm.site_files import everything, make_site

POD = SlurmPod(type="pod64", cluster="pod64", devices=64, largest=64, domain=64)
HOST = Mapped(
    name="n1", cluster="pod64", machines=("ag1",), devices=4, sizes=(4, 8), size_multiple=64
)
#: In a folder that is there: none is made.
SOCKET = "/tmp/slurm.sock"
SITES = {
    "native": Site(socket=SOCKET, pods=(POD,)),
    "plugin": Site(socket=SOCKET, mode="plugin", pods=(POD,)),
    "host-mapping": Site(socket=SOCKET, mode="host-mapping", hosts=(HOST,)),
    "static": Site(
        socket=SOCKET,
        mode="static",
        partitions=(
            Fixed(name="a", cluster="pod64", size=4),
            Fixed(name="b", cluster="pod64", size=4, gcds=2),
        ),
    ),
    "shared": Site(socket=SOCKET, mode="shared", pods=(POD,), shared="all"),
}
LICENCES = {
    "native": "matlab:4,ipu:64",
    "plugin": "matlab:4,ipu:64",
    "host-mapping": "matlab:4,podwright_job:1000000",
    "static": "matlab:4,vipu_4:2,podwright_job:1000000",
    "shared": "matlab:4,ipu:64",
}


@pytest.fixture
def places(tmp_path: Path) -> NativePlaces:
    return make_site(tmp_path)


@pytest.mark.parametrize("mode", SITES)
def test_it_is_set_up_and_taken_back(mode: str, places: NativePlaces, tmp_path: Path) -> None:
    before = everything(tmp_path)
    site = SITES[mode]
    plan = native(places, site)
    assert as_diff(plan)
    assert everything(tmp_path) == before, "looking changes nothing"
    carry_out(plan)
    assert as_diff(native(places, site)) == "", "twice is once"
    now = settings(places.slurm_conf.read_bytes().decode("latin-1"))
    assert now["licenses"].startswith(LICENCES[mode])
    assert load(places.folder / "native.toml") == site
    hook = (places.folder / "hook.conf").read_text()
    assert "before-prolog-slurmctld /site/p\n" in hook
    assert ("drain " in hook) is (mode == "host-mapping")
    script = (places.etc / "job_submit.lua").read_text()
    assert not re.findall("@[A-Z]+@", script), "each place is filled"
    assert (places.etc / "job_submit.site.lua").exists()
    assert (places.etc / "cli_filter.site.lua").exists() is (mode in ("plugin", "static"))
    stack = (places.etc / "plugstack.conf").read_text()
    assert ("ask=yes" in stack) is (mode in ("host-mapping", "static", "shared"))
    carry_out(undo(places))
    assert everything(tmp_path) == before


def test_another_way_takes_the_place_of_the_one_before(
    places: NativePlaces, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    for mode in ("plugin", "shared", "static", "host-mapping", "native"):
        carry_out(native(places, SITES[mode]))
    assert (places.etc / "cli_filter.lua").read_text() == "function slurm_cli_pre_submit() end\n"
    now = settings(places.slurm_conf.read_bytes().decode("latin-1"))
    assert "vipu_4" not in now["licenses"]
    assert "ask=yes" not in (places.etc / "plugstack.conf").read_text()
    carry_out(undo(places))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("stack", ["", None, "required site.so", "required site.so\n"])
def test_a_stack_of_plugins_comes_back_as_it_was_or_was_not(
    stack: str | None, places: NativePlaces, tmp_path: Path
) -> None:
    path = places.etc / "plugstack.conf"
    path.unlink()
    if stack is not None:
        path.write_text(stack)
    before = everything(tmp_path)
    carry_out(native(places, SITES["native"]))
    assert as_diff(native(places, SITES["native"])) == "", "twice is once"
    assert "spank_podwright.so" in path.read_text()
    carry_out(undo(places))
    assert everything(tmp_path) == before


def test_the_file_calls_the_multiple_of_a_host_whole(tmp_path: Path) -> None:
    site = SITES["host-mapping"]
    (path := tmp_path / "native.toml").write_text(dump(site))
    assert "\nwhole = 64\n" in path.read_text()
    assert load(path) == site


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode = 'static'\n", "names no .*fixed"),
        ("mode = 'host-mapping'\n", "names no .*mapped"),
        ("mode = 'other'\n", "there is no mode 'other'"),
    ],
)
def test_a_site_without_what_its_mode_needs_is_refused(
    text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "native.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        load(path)


# -- what the server has ---------------------------------------------------------------------


def partition(
    name: str, size: int, *, reconfigurable: bool = False, job: str = ""
) -> PartitionInfo:
    return PartitionInfo(
        name=name,
        cluster="podA",
        allocation="",
        size=size,
        num_gcds=1,
        num_replicas=1,
        num_ilds=1,
        routing=Routing.DEFAULT,
        gw_routing=GatewayRouting.DEFAULT,
        sync_type=SyncType.DEFAULT,
        reconfigurable=reconfigurable,
        job=job,
    )


def server(*found: PartitionInfo) -> Client:
    """Two clusters of two machines each, ag1 to ag4."""
    machines = {"podA": ["ag1", "ag2"], "podB": ["ag3", "ag4"]}

    def answer(method: str, request: Value) -> Value:
        if method == "ListClusters":
            return ClusterList(
                clusters=[
                    ClusterInfo(name=name, family="ipu", size=8, free=8, machines=names)
                    for name, names in machines.items()
                ]
            )
        if method == "ListDevices":
            return DeviceList(
                devices=[
                    DeviceInfo(
                        cluster=cluster,
                        device=DeviceRef(domain=0, offset=4 * at + k, machine=name),
                    )
                    for cluster, names in machines.items()
                    for at, name in enumerate(names)
                    for k in range(4)
                ]
            )
        return PartitionList(partitions=list(found))

    return Client(FakeTransport(answer))


def test_a_mapping_file_is_read_as_the_guide_has_it() -> None:
    text = "# hosts\n\nn1: ag1,ag2  # both\nn2:ag3\n"
    first, second = mapping(server(), text, "m")
    assert (first.name, first.cluster, first.machines, first.devices) == (
        "n1",
        "podA",
        ("ag1", "ag2"),
        8,
    )
    assert (second.name, second.cluster, second.devices) == ("n2", "podB", 4)
    assert first.sizes == (4, 8, 16, 32, 64)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1 ag1\n", "m:1: not understood: n1 ag1"),
        ("n1:\n", "not understood"),
        ("n1:ag1\nn1:ag2\n", "m:2: host n1 has a line already"),
        ("n1:ag9\n", "no machine ag9"),
        ("n1:ag1\nn2:ag1\n", "m:2: machine ag1 is host n1's already"),
        ("n1:ag1,ag3\n", "are in two clusters"),
        ("# none\n", "it maps no host"),
    ],
)
def test_a_wrong_line_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        mapping(server(), text, "m")


def test_partitions_to_hand_over_are_those_that_stay() -> None:
    there = [
        partition("a", 4),
        partition("all", 8, reconfigurable=True),
        partition("j", 2, job="7"),
    ]
    assert [one.name for one in shelf(server(*there), [])] == ["a"]
    assert shared(server(*there), [])[0] == "all"
    with pytest.raises(InvalidRequest, match="there is no partition b"):
        shelf(server(*there), ["b"])
    with pytest.raises(InvalidRequest, match="Make them first"):
        shelf(server(), [])
    with pytest.raises(InvalidRequest, match="a is not reconfigurable"):
        shared(server(*there), ["a"])
    with pytest.raises(InvalidRequest, match="there are 0 partitions"):
        shared(server(), [])
