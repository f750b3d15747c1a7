"""When PopRun cannot find a partition, or a program a device: PopRun guide 2.10, step by step.

Each step is taken with the commands that the guide names, on a pod where it is needed.
"""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

from tests.whole.conftest import Pod
from tests.whole.machines import SILENCE, World
from tests.whole.test_endings import gone, started

LAUNCH = ("poprun", "--num-replicas=4", "--num-instances=1", "--vipu-partition=part1")


def test_poprun_cannot_find_or_create_a_partition(shared16: Pod) -> None:
    """2.10.1."""
    # 1. List partitions, and check whether the name is there. It is not; poprun makes it.
    listed = shared16.good("vipu", "list", "partition").splitlines()
    assert len(listed) == 2
    made = shared16.run(*LAUNCH, "--update-partition=yes", "--remove-partition=no", "true")
    assert made.code == 0, made
    listed = shared16.good("vipu", "list", "partition").splitlines()
    assert [cell.strip() for cell in listed[2].split("|")][2:] == [
        *("part1", "1", "DEFAULT", "DNC", "4", "1", "ACTIVE"),
    ]
    # It is in the list, but not compatible with the other options.
    line = (*LAUNCH[:1], "--num-replicas=8", *LAUNCH[2:])
    refused = shared16.run(*line, "--update-partition=no", "true")
    assert refused.code not in (0, 70), refused
    assert "part1" in refused.err
    updated = shared16.run(*line, "--update-partition=yes", "--remove-partition=no", "true")
    assert updated.code == 0, updated
    assert len(shared16.partitions()["part1"]["spec"]["ipus"]) == 8
    # 2. Check connectivity to the server.
    nobody = shared16.run("vipu", "-H", "127.0.0.1:1", "list", "partition")
    assert nobody.code == 69
    assert nobody.err.startswith(
        "unable to connect to VIRM/V-IPU Controller at 127.0.0.1:1: context deadline exceeded\n"
    )
    # 3. Check that there are enough IPUs: remove some partitions, or ask for less.
    big = ("poprun", "--num-replicas=16", "--num-instances=1", "--vipu-partition=big")
    full = shared16.run(*big, "true")
    assert full.code == 75, full
    assert "part1" in full.err, "it says who stands in the way"
    shared16.good("vipu", "remove", "partition", "part1")
    assert shared16.run(*big, "true").code == 0


def test_a_program_cannot_acquire_devices_since_another_uses_them(shared16: Pod) -> None:
    """2.10.2, first bullet: launch gc-monitor to see if the device is in use."""
    shared16.good("vipu", "create", "partition", "part1", "--size", "4", "--num-gcds", "2")
    free = _monitor(shared16)
    assert [one["state"] for one in free["devices"]] == ["free"] * 4
    process = started(shared16, "--vipu-partition=part1")
    used = _monitor(shared16)
    assert [one["gcd"] for one in used["devices"]] == [0, 0, 1, 1]
    users = [user for one in used["devices"] for user in one["users"]]
    assert {(u["pid"], u["host"], u["program"]) for u in users} == {
        (process.pid, os.uname().nodename, "poprun sh")
    }
    table = shared16.good("gc-monitor").splitlines()
    assert table[0].startswith("Partition: part1 [active] has 4 IPUs in 2 GCDs, of ")
    assert [row.split(" | ")[5].strip() for row in table[3:]] == ["used"] * 4
    # IPUs cannot be shared by different programs: a second one is told by whom they are held.
    line = ("--num-replicas=4", "--num-instances=2", "--vipu-partition=part1")
    second = shared16.run("poprun", *line, "true")
    assert second.code == 75, second
    assert f"sh (process {process.pid} on {os.uname().nodename})" in second.err
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    shared16.good("vipu", "remove", "partition", "part1")
    gone(shared16)


def test_a_program_cannot_acquire_devices_in_error(world: World) -> None:
    """2.10.2, second bullet: gc-info -l shows none; an agent is in error; vipu reset partition."""
    pod = world.pod
    world.register("ag1")
    world.admin("create", "cluster", "c1", "--agents", "ag1")
    pod.good(
        "vipu", "create", "partition", "part1", "--size", "4", "--no-auto-reset", "--reconfigurable"
    )
    assert _ids(pod.good("gc-info", "-l")) == [0, 1, 2, 3, 4, 5, 6]
    world.machines.signal("ag1", signal.SIGKILL)
    world.until(lambda: world.ready("part1") == "ERROR")
    shown = pod.good("gc-info", "-l", "--all-partitions")
    silent = f"machine ag1 has been silent for {SILENCE:g} s"
    assert shown.startswith(f"Partition: part1 [error]\n !   {silent}")
    assert "vipu reset partition part1" in shown
    assert _ids(shown) == []
    assert {one["state"] for one in _monitor(pod)["devices"]} == {"down"}
    assert pod.run("vipu", "reset", "partition", "part1").code == 1, "its agent is still gone"
    world.machines.start("ag1")
    world.until(lambda: world.state("ag1")[0] == "UP")
    assert pod.good("vipu", "reset", "partition", "part1").endswith("success.\n")
    assert _ids(pod.good("gc-info", "-l")) == [0, 1, 2, 3, 4, 5, 6]


def _ids(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"-\+- Id: \[(\d+)\]", text)]


def _monitor(pod: Pod) -> dict[str, Any]:
    (found,) = json.loads(pod.good("gc-monitor", "--json"))
    assert isinstance(found, dict)
    return found
