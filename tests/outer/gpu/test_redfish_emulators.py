"""DMTF's and SNIA's emulators as judges of the Redfish drivers: they accept or refuse our requests.

A tester names the folders; nothing of the emulators is kept here.

- PODWRIGHT_DMTF_EMULATOR: a copy of DMTF's Redfish Interface Emulator.
- PODWRIGHT_SNIA_EMULATOR: a copy of SNIA's Swordfish emulator, laid over DMTF's as its set-up does.
- PODWRIGHT_EMULATOR_PYTHON: a Python that has what their requirements.txt name; this one.

Each is copied first, since it writes into its folder. Its code runs unmodified but for its address:
both listen on all addresses, and here on loopback alone. Neither refuses to compose a device twice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.agents import FabricDevice, MemoryFabricJournal
from podwright.agents.fabric import (
    COMPOSITION,
    FabricInventory,
    FabricTiming,
    HttpManager,
    MachineIdentity,
    OrderedFabric,
    Redfish,
    RedfishComposition,
    RedfishZones,
)
from podwright.errors import Internal, Unavailable, WrongState
from tests.outer.lab import poll
from tests.ports import free_port

pytestmark = pytest.mark.outer
_PYTHON = os.environ.get("PODWRIGHT_EMULATOR_PYTHON", sys.executable)
_FOLDERS = {name: os.environ.get(f"PODWRIGHT_{name}_EMULATOR", "") for name in ("DMTF", "SNIA")}
_ON_LOOPBACK = """
import flask, runpy, sys
run = flask.Flask.run
flask.Flask.run = lambda app, host=None, **more: run(app, host="127.0.0.1", **more)
sys.path.insert(0, ".")
runpy.run_path("emulator.py", run_name="__main__")
"""
FABRIC = "/redfish/v1/Fabrics/Ethernet"


def _started(name: str, folder: Path, config: dict[str, str]) -> Iterator[HttpManager]:
    """An emulator with these settings in place of its own."""
    if not _FOLDERS[name]:
        pytest.skip(f"PODWRIGHT_{name}_EMULATOR names no folder with {name}'s emulator")
    copy = shutil.copytree(_FOLDERS[name], folder / name)
    settings = copy / "emulator-config.json"
    known = json.loads(settings.read_text())
    settings.write_text(json.dumps({**known, **config}))
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [_PYTHON, "-c", _ON_LOOPBACK, "-port", str(port)],
            cwd=copy,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    manager = HttpManager("Redfish", f"http://127.0.0.1:{port}")

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        try:
            return manager.request("GET", "/redfish/v1/").status == 200
        except Unavailable:
            return False

    try:
        poll(f"{name}'s emulator answers", answers)
        yield manager
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def dmtf(tmp_path: Path) -> Iterator[HttpManager]:
    """DMTF's, with the resource blocks of its own example."""
    config = {"POPULATE": "infragen/populate-config.json", "STATIC": "Disable"}
    yield from _started("DMTF", tmp_path, config)


@pytest.fixture
def snia(tmp_path: Path) -> Iterator[HttpManager]:
    """SNIA's, whose log-in needs HTTPS and is left out."""
    yield from _started("SNIA", tmp_path, {"AUTHENTICATION": "Disable", "HTTPS": "Disable"})


async def test_dmtf_composes_what_we_ask_for(dmtf: HttpManager) -> None:
    def block(number: int) -> str:
        return f"{COMPOSITION}/ResourceBlocks/Block-{number}"

    inventory = FabricInventory(
        {
            "h1": MachineIdentity((block(2), block(3)), host=block(1)),
            "h2": MachineIdentity((block(5), block(6)), host=block(4)),
        }
    )
    hardware = RedfishComposition(Redfish(dmtf), inventory)
    fabric = OrderedFabric(hardware, MemoryFabricJournal(), FabricTiming(5.0))
    await fabric.join("a", 1, {"h1": [0], "h2": [0, 1]})
    await fabric.join("a", 2, {"h1": [1]})
    everything = {FabricDevice(host, index) for host in ("h1", "h2") for index in (0, 1)}
    assert (await fabric.read()).partitions == {"a": everything}
    links = {"ResourceBlocks": [{"@odata.id": block(2)}]}
    body = {"Id": "tenant", "Name": "tenant", "Links": links}
    for machine in ("h1", "h2"):
        with pytest.raises(WrongState, match="is in partition a"):
            await fabric.join("b", 3, {machine: [0]})
    await fabric.leave(4, {"h1": [0]})
    assert dmtf.request("POST", "/redfish/v1/Systems", body).status == 201
    with pytest.raises(WrongState, match="is in system tenant"):
        await fabric.join("b", 5, {"h1": [0]})
    assert dmtf.request("POST", "/redfish/v1/Systems", {**body, "Id": "twice"}).status == 201
    await fabric.leave(6, {"h1": [1], "h2": [0, 1]})
    assert (await fabric.read()).partitions == {}


async def test_snia_is_read_and_not_believed(snia: HttpManager) -> None:
    def endpoint(name: str) -> str:
        return f"{FABRIC}/Endpoints/{name}"

    kinds = {"HostA": "RootComplex", "HostB": "RootComplex"}
    kinds |= {f"Gpu{letter}": "Processor" for letter in "ABCD"}
    for name, kind in kinds.items():
        body = {
            "@odata.id": endpoint(name),
            "Name": name,
            "ConnectedEntities": [{"EntityType": kind}],
            "Status": {"Health": "OK", "State": "Enabled"},
        }
        assert snia.request("POST", endpoint(name), body).status == 200
    inventory = FabricInventory(
        {
            "h1": MachineIdentity((endpoint("GpuA"), endpoint("GpuB")), host=endpoint("HostA")),
            "h2": MachineIdentity((endpoint("GpuC"), endpoint("GpuD")), host=endpoint("HostB")),
        }
    )
    hardware = RedfishZones(Redfish(snia), FABRIC, inventory)
    fabric = OrderedFabric(hardware, MemoryFabricJournal(), FabricTiming(1.0))

    def zone(title: str, *members: str) -> None:
        """A zone made by the emulator's own way, which lets the client choose the address."""
        links = {"Endpoints": [{"@odata.id": endpoint(name)} for name in members]}
        body = {"@odata.id": f"{FABRIC}/Zones/{title}", "Name": title, "Links": links}
        assert snia.request("POST", f"{FABRIC}/Zones", body).status == 200

    zone("tenant", "HostB", "GpuC")
    with pytest.raises(WrongState, match="device 0 of machine h2 is in zone tenant"):
        await fabric.join("a", 1, {"h1": [0], "h2": [0]})
    zone("podwright-a-h1", "HostA", "GpuA", "GpuB")
    assert (await fabric.read()).partitions == {"a": {FabricDevice("h1", 0), FabricDevice("h1", 1)}}
    with pytest.raises(WrongState, match="is in partition a"):
        await fabric.join("b", 2, {"h1": [1]})
    # It answers a PATCH that leaves Status out with an error of its own, and changes nothing.
    with pytest.raises(Internal, match="500"):
        await fabric.leave(3, {"h1": [1]})
    await fabric.leave(4, {"h1": [0, 1]})
    assert (await fabric.read()).partitions == {}
    # It lists a zone of ours at an address where nothing answers. Its word is not believed.
    with pytest.raises(Internal, match="says that it is done, but partition c has no devices"):
        await fabric.join("c", 5, {"h2": [1]})
