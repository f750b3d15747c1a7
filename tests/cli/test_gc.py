"""`gc-info` and `gc-monitor`: the devices, by number, and their users."""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from podwright.cli import gc_absent
from podwright.cli.devices import _gc_common
from podwright.cli.gc_info import main as gc_info
from podwright.cli.gc_monitor import main as gc_monitor
from podwright.cli.shared._server_options import ServerNames
from podwright.client import Client, FakeTransport, FoundServer, ServerOptions
from podwright.launcher.run import _launch_partition
from podwright.wire import (
    AcquireRequest,
    ClusterInfo,
    ClusterList,
    DeviceInfo,
    DeviceList,
    LeaseInfo,
    ListRequest,
    PartitionInfo,
    PartitionList,
    PartitionSpec,
    ReadyState,
    ServerInfo,
    Value,
    holder_words,
    read_holder,
)
from tests.cli.test_vipu import device, partition

P1 = partition("p1", 4, reconfigurable=True)
P2 = replace(partition("p2", 2, 2), gcds=[[device(8)], [device(9)]])
BROKEN = partition("p3", ready_state=ReadyState.ERROR, errors=["machine m0 is silent"])


def lease(name: str, *devices: int, parent: str = "", holder: str = "") -> LeaseInfo:
    return LeaseInfo(
        id=name, partition="p1", epoch=1, holder=holder, owner="bob", parent=parent,
        devices=list(devices), expires_in=9.0,
    )  # fmt: skip


class Gc:
    """Runs one of the commands against these partitions."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.states: dict[int, str] = {}
        self.apis = ["podwright.v1"]
        self.out = self.err = ""

    def __call__(self, line: str, *partitions: PartitionInfo, caller: str = "ann") -> int:
        def handler(name: str, request: Value) -> Value:
            if name == "ListPartitions":
                return PartitionList(partitions=list(partitions))
            if name == "ListClusters":
                pod = ClusterInfo(name="pod16", family="ipu", size=16, free=0)
                return ClusterList(clusters=[pod])
            assert (name, request) == (
                "ListDevices",
                ListRequest(cluster="pod16", allocation="pod16"),
            )
            return DeviceList(
                devices=[
                    DeviceInfo(
                        cluster="pod16",
                        device=device(at),
                        state=self.states.get(at, "IN_USE"),
                        attributes={"clock": f"{at} MHz"},
                    )
                    for at in range(16)
                ]
            )

        def connect(arguments: ServerNames) -> FoundServer:
            info = ServerInfo(version="1", apis=self.apis, caller=caller)
            return FoundServer(
                Client(FakeTransport(handler, address="localhost:8090")), info, "named"
            )

        command, _, rest = line.partition(" ")
        main = {"gc-info": gc_info, "gc-monitor": gc_monitor}[command]
        try:
            code = main(rest.split(), connect)
        except SystemExit as end:
            code = int(str(end.code))
        self.out, self.err = self._capsys.readouterr()
        return code

    def rows(self) -> list[list[str]]:
        """The cells of the only table."""
        lines = [line for line in self.out.splitlines() if " | " in line][1:]
        return [[cell.strip() for cell in line.split(" | ")] for line in lines]


@pytest.fixture
def gc(capsys: pytest.CaptureFixture[str]) -> Gc:
    return Gc(capsys)


def test_devices_by_the_numbers_of_real_ones(gc: Gc) -> None:
    assert gc("gc-info -l", P1) == 0
    lines = gc.out.splitlines()
    assert lines[0] == "Partition: p1 [active]"
    single = "-+- Id: [{}], target: [Fabric], machine: [m0], host: [10.0.0.1], IPU#: [{}]"
    assert lines[1:5] == [single.format(at, 3 - at) for at in range(4)]
    assert lines[5] == "-+- Id: [4], target: [Multi IPU]"
    assert lines[6] == " |--- DNC Id: [0], machine: [m0], host: [10.0.0.1], IPU#: [0]"
    assert lines[11] == "-+- Id: [6], target: [Multi IPU]"
    assert len(lines) == 16


def test_all_partitions_are_numbered_in_one_sequence(gc: Gc) -> None:
    others = partition("p0", 4, owner="eve")
    assert gc("gc-info -l --all-partitions", others, P1, P2) == 0
    assert re.findall(r"Id: \[(\d+)\], target", gc.out) == [str(at) for at in range(10)]
    assert re.findall(r"^Partition: (\w+) \[active\]", gc.out, re.MULTILINE) == ["p0", "p1", "p2"]
    assert gc("gc-info -l", others, P1, P2) == 0
    assert re.findall(r"^Partition: (\w+)", gc.out, re.MULTILINE) == ["p1", "p2"]
    assert gc("gc-info -l --partition p2", others, P1, P2) == 0
    assert "Id: [0], target: [Fabric], GCD: [0]" in gc.out
    assert gc("gc-info -l --all-partitions --json", others, P1, P2) == 0
    read = json.loads(gc.out)
    assert [len(one["devices"]) for one in read] == [1, 7, 2]
    assert [m["routing_id"] for m in read[1]["devices"][5]["members"]] == [2, 3]
    assert read[2]["devices"][1]["id"] == 9


def test_one_in_error_shows_why_and_no_devices(gc: Gc) -> None:
    assert gc("gc-info -l", BROKEN, P2) == 0
    assert gc.out.splitlines()[:3] == [
        "Partition: p3 [error]",
        " !   machine m0 is silent",
        " !   no program can attach to it; try: vipu reset partition p3",
    ]
    assert re.findall(r"Id: \[(\d)\]", gc.out) == ["0", "1"], "p2 is numbered as if it were alone"
    assert gc("gc-info -l --json", BROKEN) == 0
    assert json.loads(gc.out)[0]["devices"] == []


def test_nobodys_words_move_the_cursor(gc: Gc) -> None:
    words = holder_words("a", 1, "h") + "\x1b[2J"
    evil = partition("p1", leases=[lease("l1", holder=words)], job="\x1b[H", errors=["\x07"])
    for line in ("gc-monitor", "gc-info -l"):
        assert gc(line, evil) == 0
        assert all(letter.isprintable() or letter == "\n" for letter in gc.out)


def test_device_info_says_what_is_known_of_one_device(gc: Gc) -> None:
    assert gc("gc-info -d 5 --device-info --json", P1) == 0
    read = json.loads(gc.out)
    assert read["number of IPUs"] == 2
    assert (read["ipuof routing id"], read["ipuof partition id"]) == (2, "p1")
    assert (read["clock"], read["reconfigurable partition"]) == ("2 MHz", "true")
    assert gc("gc-info -d 7", P1) == 2
    assert "there is no device 7. gc-info -l lists" in gc.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gc-info", "name a device with -d N, or list all with -l"),
        ("gc-info -l -d 1", "name a device with -d N, or list all with -l"),
        ("gc-info -l --device-info", "--device-info needs -d N"),
        ("gc-info -l --partition p1 --all-partitions", "not allowed with"),
        ("gc-info -l --al-partitions", "did you mean '--all-partitions'?"),
        ("gc-monitor --live --partition p1", "not allowed with"),
        ("gc-monitor --live --json", "a screen is no JSON. gc-monitor --json"),
        ("gc-monitor --live", "this is not a terminal"),
        ("gc-monitor --partition px", "there is no partition 'px'. There are: p1"),
    ],
)
def test_what_is_wrong_is_said(gc: Gc, line: str, words: str) -> None:
    assert gc(line, P1) in (1, 2)
    assert words in gc.err


def test_gc_monitor_says_who_is_on_which_device(gc: Gc) -> None:
    words = holder_words("train.py", 4711, "node3")
    leases = [
        lease("l1"),
        lease("l2", 0, 1, parent="l1", holder=words),
        lease("l3", 2, parent="l1", holder="somebody else"),
    ]
    gc.states = {1: "DOWN", 3: "RESETTING"}
    assert gc("gc-monitor", partition("p1", 4, reconfigurable=True, leases=leases, job="42")) == 0
    assert gc.out.startswith(
        "Partition: p1 [active] has 4 reconfigurable IPUs, of ann, job 42\nId | "
    )
    assert [[row[0], row[3], *row[5:]] for row in gc.rows()] == [
        ["0", "3", "resetting", "bob", "-", "-", "-", "l1"],
        ["1", "2", "used", "bob", "-", "-", "somebody else", "l3"],
        ["2", "1", "down", "bob", "node3", "4711", "train.py", "l2"],
        ["3", "0", "used", "bob", "node3", "4711", "train.py", "l2"],
    ]


def test_gc_monitor_prints_the_same_as_json(gc: Gc) -> None:
    words = holder_words("train.py", 4711, "node3")
    used = partition("p2", 4, 2, leases=[lease("l1", holder=words)])
    assert gc("gc-monitor --json", used) == 0
    (read,) = json.loads(gc.out)
    assert [one["id"] for one in read["devices"]] == [0, 0, 1, 1]
    assert read["devices"][0]["users"] == [
        {
            "user": "bob",
            "host": "node3",
            "pid": 4711,
            "program": "train.py",
            "lease": "l1",
            "expires_in": 9.0,
        }
    ]


def test_what_was_made_without_a_name_is_everybodys_own(gc: Gc) -> None:
    """poprun makes it over TCP, and `gc-info -l` asks over the socket, as root, say."""
    nameless = replace(P1, owner="anonymous", creator="anonymous")
    assert gc("gc-info -l", nameless, caller="root") == 0
    assert gc.out.startswith("Partition: p1 [active]")
    others = replace(P1, owner="bob", creator="bob")
    assert gc("gc-info -l", others, caller="root") == 0
    assert "No partition belongs to root." in gc.out + gc.err


def test_where_there_is_nothing_it_says_what_would_be(gc: Gc) -> None:
    assert gc("gc-monitor", P1, caller="eve") == 0
    assert gc.out.startswith("No partition belongs to eve. --all-partitions shows")
    assert gc("gc-monitor --all-partitions") == 0
    assert gc.out.startswith("There is no partition.")
    assert gc("gc-monitor --json") == 0
    assert json.loads(gc.out) == []


def test_a_vendors_controller_knows_no_users(gc: Gc) -> None:
    gc.apis = ["virmgrpc"]
    assert gc("gc-monitor", P2) == 0
    assert [row[5] for row in gc.rows()] == ["free", "free"]


def test_inside_a_program_it_is_that_programs(gc: Gc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p2")
    assert gc("gc-info -l", P1, P2) == 0
    assert re.findall(r"^Partition: (\w+)", gc.out, re.MULTILINE) == ["p2"]
    asked: list[str] = []

    def connect(_: ServerNames, options: ServerOptions) -> Any:
        asked.append(options.host + options.port)

    monkeypatch.setattr(_gc_common, "connect", connect)
    environ = {"IPUOF_VIPU_API_HOST": "h1", "IPUOF_VIPU_API_PORT": "81"}
    _gc_common.reach(ServerNames(Namespace()), environ)
    _gc_common.reach(ServerNames(Namespace(api_host="h2")), environ)
    _gc_common.reach(ServerNames(Namespace()), {**environ, "VIPU_CLI_API_HOST": "h3"})
    assert asked == ["h181", "h2", ""]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (("train.py",), "train.py"),
        (("/usr/bin/python3.11", "-u", "dir/train.py", "--key", "secret"), "train.py"),
        (("python3", "-c", "print()"), "python3"),
        (("sh", "-c", "export KEY=secret"), "sh"),
        (("./a b",), "a b"),
    ],
)
def test_a_launch_says_who_it_is_without_its_arguments(program: tuple[str, ...], name: str) -> None:
    request = _launch_partition.in_name_of(AcquireRequest(spec=PartitionSpec(name="p")), program)
    assert read_holder(request.holder) == (f"poprun {name}", os.getpid(), os.uname().nodename)


def test_words_that_are_not_ours_are_the_program() -> None:
    assert read_holder("me") == ("me", 0, "")
    assert read_holder(holder_words("a\nb", 1, "")) == ("a?b", 1, "localhost")


def test_options_of_v_ipus_own_commands_are_there(gc: Gc) -> None:
    used = partition("p1", 4, reconfigurable=True, leases=[lease("l1", 0)])
    assert gc("gc-monitor --no-card-info", used) == 0
    assert [row[5] for row in gc.rows()] == ["used"]
    assert gc("gc-monitor -j", used) == 0
    assert json.loads(gc.out)[0]["partition"] == "p1"
    assert gc("gc-info -d 0 --tile-overview", used) == 2
    assert "--tile-overview is not for this hardware" in gc.err


@pytest.mark.parametrize(
    ("run", "name", "instead"),
    [
        (gc_absent.reset, "gc-reset", "vipu reset partition NAME"),
        (gc_absent.inventory, "gc-inventory", "gc-info -l --all-partitions"),
    ],
)
def test_commands_that_the_server_stands_for_say_so(
    run: Callable[[list[str]], int], name: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-d", "0"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{name} is not for this hardware.")
    assert instead in said
    assert run(["--help"]) == 0
