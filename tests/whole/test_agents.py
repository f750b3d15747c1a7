"""A server, agents and an administrator, each a process of its own: made, killed, found again."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.client import parse_addresses
from podwright.wire import (
    DiscoveredList,
    DiscoverRequest,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionName,
)
from tests.certificates import MACHINE, SERVER, folder_of
from tests.ports import free_ports
from tests.whole.conftest import REPOSITORY, Pod
from tests.whole.machines import SILENCE, Machines, World

#: A program without the key, one with another, and one that has it and takes ag2 for ag1.
LET_STRANGERS_TRY = """
python - $(vipu-admin list agents --json | python -c '
import json, sys
print(*(agent["port"] for agent in json.load(sys.stdin)))') <<'END'
import asyncio, os, sys
from pathlib import Path
from podwright.agents import RemoteMachine, Secret, read_key
from podwright.errors import PodwrightError

async def main():
    ours = Secret(read_key(Path(os.environ["PODWRIGHT_AGENT_KEY"])))
    for name, port, secret in (
        ("ag1", sys.argv[1], None),
        ("ag1", sys.argv[1], Secret(b"0123456789abcdef")),
        ("ag1", sys.argv[2], ours),
    ):
        machine = RemoteMachine(name, "127.0.0.1", int(port), secret=secret)
        try:
            await machine.reset(1 << 62, [0])
        except PodwrightError as error:
            print(error.message)
        await machine.close()

asyncio.run(main())
END
"""


def test_from_nothing_to_a_running_cluster_and_over_a_restart(world: World) -> None:
    assert world.pod.json("vipu", "list", "clusters") == []
    world.register("ag1", "ag2")
    made = world.admin("create", "cluster", "c1", "--agents", "ag1,ag2", "--topology", "mesh")
    assert made == "create cluster (c1): success.\n"
    world.pod.good("vipu", "create", "partition", "p1", "--size", "8")
    world.pod.stop(signal.SIGKILL)
    world.pod.start()
    assert world.ready("p1") == "ACTIVE"
    listed = world.admin("list", "agents").splitlines()
    assert listed[0].split(" | ")[0].strip() == "Agent"
    assert [line.split()[0] for line in listed[2:]] == ["ag1", "ag2"]
    refused = world.pod.run("vipu-admin", "remove", "cluster", "c1")
    assert (refused.code, "it has p1 in it" in refused.err) == (1, True)
    world.pod.good("vipu-admin", "remove", "partition", "p1")
    assert world.admin("remove", "cluster", "c1") == "remove cluster (c1): success.\n"
    assert world.admin("remove", "agent", "ag1") == "remove agent (ag1): success.\n"


def test_the_guides_first_block_is_safe_as_typed(
    make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    """Agents in the background, registered in the next line: they may not be there yet. And
    nobody but their server can give them orders, though nothing was said of a key."""
    page = (REPOSITORY / "docs/admin/guide.md").read_text()
    block = next(b for b in re.findall(r"```sh\n(.*?)```", page, re.S) if "vipu-agent" in b)
    pod = make_pod()
    ports = free_ports(2)
    typed = block.replace("8081", str(ports[0])).replace("8082", str(ports[1]))
    assert typed.count("--agent-key") == 0 < typed.count("&\n")
    typed = re.sub(r"vipu-agent --machine (\w+)", rf"\g<0> --state {tmp_path}/\1.json", typed)
    done = pod.run("bash", "-euc", f"trap 'kill $(jobs -p)' EXIT\n{typed}{LET_STRANGERS_TRY}")
    assert done.code == 0, done
    assert re.findall(r"create (?:agent|cluster) \(\w+\): success", done.out) == [
        f"create {what}: success" for what in ("agent (ag1)", "agent (ag2)", "cluster (c1)")
    ]
    assert [line.split()[0] for line in done.out.splitlines() if " UP" in line] == ["ag1", "ag2"]
    assert done.out.count("the agent does not know this caller") == 2
    assert done.out.count("this call is for machine ag1, and this is ag2") == 1


def test_an_administrators_command_starts_no_server(tmp_path: Path) -> None:
    """What it made would be on a simulated pod that goes with the hour."""
    pod = Pod(tmp_path)
    del pod.environ["PODWRIGHT_SOCKET"]
    for words in ("list agents", "create user alice", "create partition p1 --size 4"):
        ran = pod.run("vipu-admin", *words.split())
        assert (ran.code, ran.out) == (69, "")
        assert "there is no server to administer" in ran.err
    assert not list(Path(pod.environ["XDG_RUNTIME_DIR"]).rglob("*.sock"))


def test_a_killed_agent_is_noticed_and_comes_back_reset(world: World) -> None:
    world.register("ag1", "ag2")
    world.admin("create", "cluster", "c1", "--agents", "ag1,ag2")
    world.pod.good("vipu", "create", "partition", "p1", "--size", "8")
    world.machines.signal("ag2", signal.SIGKILL)
    world.until(lambda: world.ready("p1") == "ERROR")
    info = world.pod.good("vipu", "get", "partition", "p1")
    assert f"machine ag2 has been silent for {SILENCE:g} s" in info
    assert world.state("ag2")[0] == "DOWN"
    devices = world.pod.json("vipu", "list", "devices")
    assert {d["state"] for d in devices if d["device"]["machine"] == "ag2"} == {"DOWN"}
    world.machines.start("ag2")
    world.until(lambda: world.ready("p1") == "ACTIVE")  # by the automatic reset
    assert world.state("ag2") == ("UP", "")
    kept = json.loads((world.machines.folder / "ag2.json").read_text())
    assert {device["partition"] for device in kept["devices"]} == {"p1"}


def test_a_relocatable_partition_moves_and_what_it_left_is_reset(world: World) -> None:
    world.register("ag1", "ag2")
    world.admin("create", "cluster", "c1", "--agents", "ag1,ag2")
    world.pod.good("vipu", "create", "partition", "p1", "--size", "4", "--relocatable")
    assert _machines(world, "p1") == {"ag1"}
    world.machines.signal("ag1", signal.SIGKILL)
    world.until(lambda: (world.ready("p1"), _machines(world, "p1")) == ("ACTIVE", {"ag2"}))
    assert "Relocate p1" in world.pod.good("vipu", "events")
    refused = world.pod.run("vipu", "create", "partition", "p2", "--size", "4")
    assert (refused.code, "ag1" in refused.err) == (75, True)
    world.machines.start("ag1")
    world.until(lambda: world.state("ag1")[0] == "UP")
    world.until(lambda: world.pod.run("vipu", "create", "partition", "p2", "--size", "4").code == 0)
    kept = json.loads((world.machines.folder / "ag1.json").read_text())
    assert {device["partition"] for device in kept["devices"]} == {"p2"}


def _machines(world: World, partition: str) -> set[str]:
    info = world.ask("GetPartition", PartitionName(name=partition), PartitionInfo)
    return {device.machine for gcd in info.gcds for device in gcd}


def test_an_agent_that_hangs_is_noticed_too(world: World) -> None:
    world.register("ag1")
    world.admin("create", "cluster", "c1", "--agents", "ag1")
    world.pod.good("vipu", "create", "partition", "p1", "--size", "4")
    world.machines.signal("ag1", signal.SIGSTOP)
    world.until(lambda: world.ready("p1") == "ERROR")
    world.machines.signal("ag1", signal.SIGCONT)
    world.until(lambda: world.ready("p1") == "ACTIVE")


def test_an_agent_killed_in_the_middle_of_a_step(world: World) -> None:
    quick = world.machines.arguments
    world.machines.arguments += ("--delay", "5")
    world.register("ag1")
    world.admin("create", "cluster", "c1", "--agents", "ag1")
    creating = threading.Thread(
        target=world.pod.run, args=("vipu", "create", "partition", "p1", "--size", "4")
    )
    creating.start()
    world.until(lambda: world.ask("ListPartitions", ListRequest(), PartitionList).partitions != [])
    world.machines.signal("ag1", signal.SIGKILL)
    creating.join()
    assert world.ready("p1") == "ERROR"
    world.machines.arguments = quick
    world.machines.start("ag1")
    world.until(lambda: world.ready("p1") == "ACTIVE")


def test_an_agent_killed_and_back_at_once_changes_nothing(world: World) -> None:
    world.register("ag1")
    world.admin("create", "cluster", "c1", "--agents", "ag1")
    world.pod.good("vipu", "create", "partition", "p1", "--size", "4")
    world.machines.signal("ag1", signal.SIGKILL)
    world.machines.start("ag1")
    world.until_heard("ag1")
    world.until(lambda: world.ready("p1") == "ACTIVE")  # it was, unless the start took long
    world.pod.good("vipu", "reset", "partition", "p1")
    assert world.ready("p1") == "ACTIVE"


def test_other_hardware_is_refused_until_somebody_says_that_it_is_right(world: World) -> None:
    world.register("ag1")
    world.admin("create", "cluster", "c1", "--agents", "ag1")
    world.machines.signal("ag1", signal.SIGKILL)
    world.machines.start("ag1", "--serial", "NEW")
    world.until(lambda: world.state("ag1")[0] == "REFUSED")
    assert world.state("ag1")[1] == "device 0 is NEW-0, not SIM-ag1-0"
    refused = world.pod.run("vipu", "create", "partition", "p1", "--size", "1")
    assert refused.code == 75
    port = str(world.machines.ports["ag1"])
    world.admin("create", "agent", "ag1", "--host", "127.0.0.1", "--port", port, "--replace")
    world.until(lambda: world.pod.run("vipu", "create", "partition", "p1", "--size", "1").code == 0)


def test_a_stranger_is_no_agent_and_an_agent_obeys_no_stranger(world: World) -> None:
    world.machines.arguments = ()  # it has this account's own key, and the server another
    world.machines.start("ag9")
    port = str(world.machines.ports["ag9"])
    words = ("create", "agent", "ag9", "--host", "127.0.0.1", "--port", port)
    refused = world.pod.run("vipu-admin", *words)
    assert refused.code == 1
    assert "the agent does not know this caller" in refused.err
    assert "with the same --agent-key file" in refused.err
    away = world.pod.run("vipu-agent", "--machine", "a", "--host", "0.0.0.0", "--port", "0")
    assert (away.code, "--agent-key" in away.err) == (2, True)


def test_agents_are_discovered(world: World) -> None:
    address = world.pod.good("vipu", "--server-version").splitlines()[1].removeprefix("host: ")
    if not address.rpartition(":")[2].isdecimal():
        pytest.fail(f"no port in {address!r}")
    assert parse_addresses(address)
    world.machines.start("ag1", "--server", address)
    rows: list[str] = []

    def there() -> bool:
        rows[:] = world.admin("discover", "agent").splitlines()
        return len(rows) == 3

    world.until(there)
    header = "Host | Port | Network Interface | Time Since Last Seen | Agent Auto-Add ID"
    assert re.sub(" +", " ", rows[0]) == header
    cells = [cell.strip() for cell in rows[2].split("|")]
    assert (cells[0], cells[2], cells[4]) == ("127.0.0.1", "lo", "ag1")
    world.admin("create", "agent", "ag1")
    assert world.state("ag1")[0] == "UP"


def test_a_secure_server_and_its_agents_speak_tls(
    make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    pod = make_pod("--secure", "--tls-certs", str(SERVER), "-a", "lo")
    machines = Machines(tmp_path, "--tls-certs", str(folder_of(MACHINE)))
    world = World(pod, machines)
    try:
        address = pod.good("vipu", "--server-version").splitlines()[1].removeprefix("host: ")
        machines.start(MACHINE, "--server", address)
        found = DiscoverRequest()  # the agent's announcement came over TLS, too
        world.until(lambda: bool(world.ask("DiscoverAgents", found, DiscoveredList).agents))
        world.admin("create", "agent", MACHINE)
        world.admin("create", "cluster", "c1", "--agents", MACHINE)
        pod.good("vipu", "create", "partition", "p1", "--size", "4")
        kept = json.loads((tmp_path / f"{MACHINE}.json").read_text())
        assert {device["partition"] for device in kept["devices"]} == {"p1"}
        machines.arguments = ()  # an agent without TLS is not an agent of this server's
        machines.start("plain")
        port = str(machines.ports["plain"])
        words = ("create", "agent", "plain", "--host", "127.0.0.1", "--port", port)
        refused = pod.run("vipu-admin", *words)
        assert (refused.code, "machine plain does not answer" in refused.err) == (69, True)
    finally:
        machines.end()
