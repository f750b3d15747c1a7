"""An independent judge of NMX-M's driver and of our model of it: Prism, by NVIDIA's document.

`prism proxy --errors` stands between both, and answers what violates the document, in either
direction, with an error of its own and a line in its log.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.agents import MemoryFabricJournal
from podwright.agents.fabric import FabricTiming, HttpManager, Nmx, OrderedFabric, Racks
from podwright.errors import Internal, WrongState
from tests.machines.nmx import DEFAULT_PARTITION, Rack, inventory
from tests.outer.prism import SPECIFICATION, prism_command
from tests.ports import free_port

pytestmark = pytest.mark.outer


class Judge:
    """Prism before a rack."""

    def __init__(self, rack: Rack, folder: Path) -> None:
        self.rack, self.log = rack, folder / "prism.log"
        port = free_port()
        options = ["proxy", "--errors", "-p", str(port), str(SPECIFICATION), rack.url]
        command = [str(prism_command()), *options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while b"is listening" not in self.log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Prism does not listen: {self.log.read_text()}")
            time.sleep(0.1)
        self.url = f"http://127.0.0.1:{port}"

    def violations(self) -> list[str]:
        """What Prism has against either side: the requests that it ended with an error."""
        return [
            line for line in self.log.read_text().splitlines() if "terminated with error" in line
        ]

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    """Prism before a rack of which half the GPUs are in the default partition."""
    rack = Rack(4)
    rack.add("Default Partition", sorted(rack.trays)[:8], DEFAULT_PARTITION)
    rack.add("tenant-without-gpus", [])
    try:
        found = Judge(rack, tmp_path)
        yield found
        found.close()
    finally:
        rack.close()


async def test_no_call_violates_the_document(judge: Judge) -> None:
    timing = FabricTiming(sleep=lambda _: None)
    nmx = Nmx(HttpManager("NMX-M", judge.url), timing)
    driver = OrderedFabric(Racks(nmx, inventory(4)), MemoryFabricJournal(), timing)
    await driver.join("a", 1, {"t0": [0, 1], "t2": [0]})
    await driver.join("a", 2, {"t3": [0, 1]})
    await driver.leave(3, {"t0": [0]})
    with pytest.raises(WrongState):
        await driver.join("b", 4, {"t0": [1]})
    judge.rack.faults.fail = "a switch is down"
    with pytest.raises(Internal, match="a switch is down"):
        await driver.join("b", 5, {"t1": [0]})
    await driver.leave(6, {"t0": [0, 1], "t2": [0], "t3": [0, 1]})
    assert (await driver.read()).partitions == {}
    assert set(judge.rack.calls) == {"POST", "PUT", "DELETE"}
    assert judge.violations() == []


def test_the_judge_sees_violations(judge: Judge) -> None:
    """The document is enforced in both directions, so the test above can fail."""
    nmx = HttpManager("NMX-M", judge.url)
    assert nmx.request("POST", "/nmx/v1/partitions", {"Name": "a"}).status == 422
    for partition in judge.rack.partitions.values():
        partition["Health"] = "splendid"
    assert nmx.request("GET", "/nmx/v1/partitions").status == 500
    assert judge.violations() != []
