"""`vipu` word by word: its requests to a server, its output, and its refusals."""

from __future__ import annotations

import importlib
import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from podwright.cli.shared._server_options import ServerNames
from podwright.cli.vipu import main
from podwright.client import Client, FakeTransport, FoundServer, ServerOptions
from podwright.errors import AlreadyExists
from podwright.wire import (
    AllocationInfo,
    AllocationList,
    ClusterInfo,
    ClusterList,
    CreateRequest,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    Empty,
    GatewayRouting,
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    ListRequest,
    OperationState,
    PartitionInfo,
    PartitionList,
    PartitionName,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    ResetRequest,
    Routing,
    ServerInfo,
    SyncType,
    Value,
)


def device(offset: int, domain: int = 0) -> DeviceRef:
    return DeviceRef(
        domain=domain,
        offset=offset,
        machine=f"m{offset // 4}",
        index=offset % 4,
        ip="10.0.0.1",
        server_port=8000 + offset,
        rdma_port=9000,
        arch_id=1,
        chip_id=f"c{offset}",
    )


def partition(name: str = "p1", size: int = 4, gcds: int = 1, **changes: Any) -> PartitionInfo:
    share = size // gcds
    fields: dict[str, Any] = {
        "name": name,
        "cluster": "pod16",
        "allocation": "pod16",
        "size": size,
        "num_gcds": gcds,
        "num_replicas": gcds,
        "num_ilds": 1,
        "routing": Routing.DNC,
        "gw_routing": GatewayRouting.DEFAULT,
        "sync_type": SyncType.DEFAULT,
        "ready_state": ReadyState.ACTIVE,
        "operation_state": OperationState.IDLE,
        "gcds": [[device(g * share + n) for n in range(share)] for g in range(gcds)],
        "ilds": [0],
        "owner": "ann",
        "simulated": True,
        "auto_reset_max": 3,
        **changes,
    }
    return PartitionInfo(**fields)


class Vipu:
    """Runs the command against one answer, and keeps requests and output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.calls: list[tuple[str, Value]] = []
        self.out = self.err = ""

    def __call__(self, line: str, answer: Value | Exception | None = None, **info: Any) -> int:
        def handler(name: str, request: Value) -> Value:
            if isinstance(answer, Exception):
                raise answer
            if name in ("RemovePartition", "Release"):
                return Empty()
            assert answer is not None, f"{name} was not expected"
            return answer

        transport = FakeTransport(handler, address="localhost:8090")

        def connect(arguments: ServerNames) -> FoundServer:
            return FoundServer(Client(transport), ServerInfo(version="1.2.3", **info), "named")

        try:
            code = main(line.split(), connect)
        except SystemExit as end:
            code = int(str(end.code))
        self.calls = transport.calls
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def vipu(capsys: pytest.CaptureFixture[str]) -> Vipu:
    return Vipu(capsys)


def test_create_sends_the_size_and_prints_v_ipus_line(vipu: Vipu) -> None:
    assert vipu("create partition p1 --size 4", partition()) == 0
    assert (vipu.out, vipu.err) == ("create partition (p1): success.\n", "")
    assert vipu.calls == [("CreatePartition", CreateRequest(spec=PartitionSpec(name="p1", size=4)))]


def test_create_sends_every_option_at_once(vipu: Vipu) -> None:
    line = (
        "create partition p1 --size 128 --num-gcds 32 --gcd-sync-replicas 32 --num-ilds 2 "
        "--routing ringswnc --gw-routing ring --sync-type ST_POD_NATIVE_DEFAULT --allocation a "
        "--cluster c --no-auto-reset --relocatable"
    )
    assert vipu(line, partition()) == 0
    assert vipu.calls[0][1] == CreateRequest(
        spec=PartitionSpec(
            name="p1",
            size=128,
            cluster="c",
            allocation="a",
            num_gcds=32,
            num_replicas=32,
            num_ilds=2,
            routing=Routing.RINGSWNC,
            gw_routing=GatewayRouting.RING,
            sync_type=SyncType.POD_NATIVE_DEFAULT,
            auto_reset=False,
            relocatable=True,
        )
    )


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ("--size 4 --gcds 2", {"size": 4, "num_gcds": 2}),
        ("--size 4 --num-replicas 2", {"size": 4, "num_replicas": 2}),
        ("--size 4 --routing DNC", {"size": 4, "routing": Routing.DNC}),
        (
            "--size 4 --reconfigurable",
            {"size": 4, "reconfigurable": True, "sync_type": SyncType.GS2_DEFAULT},
        ),
        (
            "--size 4 --reconfigurable --sync-type c2-compatible",
            {"size": 4, "reconfigurable": True, "sync_type": SyncType.GS2_DEFAULT},
        ),
        ("--devices 0:0-1,1:7", {"size": 3, "devices": [(0, 0), (0, 1), (1, 7)]}),
        (
            "--size 4 --sync-type pod-native-replicated-pipeline",
            {"size": 4, "sync_type": SyncType.POD_NATIVE_REPLICATED_PIPELINE},
        ),
    ],
)
def test_each_option_of_create_reaches_the_server(
    vipu: Vipu, options: str, changes: dict[str, Any]
) -> None:
    assert vipu(f"create partition p1 {options}", partition()) == 0
    assert vipu.calls[0][1] == CreateRequest(spec=PartitionSpec(name="p1", **changes))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "create partition p1: --size is missing. Say --size N."),
        ("--size 0", "'0' is not a whole number above 0"),
        ("--size four", "'four' is not a whole number above 0"),
        ("--size 4 --num-gcds 0", "'0' is not a whole number above 0"),
        ("--size 4 --num-ilds -1", "'-1' is not a whole number, 0 or more"),
        ("--size 4 --routing ring", "not 'ring'; did you mean 'ringswnc'?"),
        ("--size 4 --sync-type fast", "'fast' is not a sync type. It is one of: c2-compatible"),
        (
            "--size 4 --reconfigurable --sync-type pod-native-default",
            "a reconfigurable partition has sync type c2-compatible, not pod-native-default",
        ),
        ("--size 4 --index 3", "--index is named in V-IPU's documents, but not what it means"),
        ("--devices 0", "'0' is not DOMAIN:OFFSET"),
        ("--devices 0:3-1", "'0:3-1' is not DOMAIN:OFFSET"),
        ("--devices 0:0-4,0:2", "--devices names 0:2 twice"),
        ("--devices 0:0-9999999", "is not DOMAIN:OFFSET"),
        ("--size 2 --devices 0:0", "--size says 2, --devices names 1. Leave out --size."),
        ("--size 4 --num-gcd 2", "unknown option '--num-gcd'; did you mean '--num-gcds'?"),
    ],
)
def test_what_cannot_be_meant_asks_no_server(vipu: Vipu, options: str, words: str) -> None:
    assert vipu(f"create partition p1 {options}") == 2
    assert (vipu.calls, vipu.out) == ([], "")
    assert words in vipu.err
    assert vipu.err.count("\n") == 1


def test_a_refusal_is_one_line(vipu: Vipu) -> None:
    error = AlreadyExists(
        "there is one of that name", operation="create partition p1", would_work="choose another"
    )
    assert vipu("create partition p1 --size 4", error) == 1
    assert (vipu.out, vipu.err) == (
        "",
        "vipu: create partition p1: there is one of that name. Choose another.\n",
    )


def test_a_partition_that_is_born_in_error_is_no_success(vipu: Vipu) -> None:
    born = partition(ready_state=ReadyState.ERROR, errors=["m0 does not answer"])
    for line in ("create partition p1 --size 4", "reset partition p1"):
        assert vipu(line, born) == 1
        assert vipu.out == ""
        assert vipu.err == (
            f"{line.split()[0]} partition (p1): failed: m0 does not answer. "
            "Try: vipu reset partition p1; with --relocatable it gets other devices\n"
        )


def test_reset_and_remove_send_what_their_options_say(vipu: Vipu) -> None:
    assert vipu("reset partition p1 --relocatable --force", partition()) == 0
    assert vipu.out == "reset partition (p1): success.\n"
    assert vipu.calls[0][1] == ResetRequest(name="p1", relocatable=True, force=True)
    for verb in ("remove", "delete"):
        assert vipu(f"{verb} partition p1 --force") == 0
        assert vipu.out == "remove partition (p1): success.\n"
        assert vipu.calls == [("RemovePartition", RemoveRequest(name="p1", force=True))]


def test_remove_lease_ends_the_lease_or_says_what_it_waits_for(vipu: Vipu) -> None:
    leases = LeaseList(leases=[LeaseInfo(id="l7", partition="p1", epoch=3)])
    assert vipu("remove lease l7", leases) == 0
    said = LeaseRequest(id="l7", epoch=3, confirmed=False)  # nobody saw its instances end
    assert vipu.calls[1] == ("Release", said)
    assert vipu("remove lease l7 --force", leases) == 0
    said = LeaseRequest(id="l7", epoch=3, confirmed=False, force=True)
    assert vipu.calls[1] == ("Release", said)
    kept = LeaseInfo(id="l7", partition="p1", epoch=3, state="FENCING", waits_for=["host n1"])
    assert vipu("remove lease l7", LeaseList(leases=[kept])) == 0
    assert "nobody gets its devices before host n1 did their part" in vipu.err
    assert vipu("remove lease l8", leases) == 1
    assert vipu.err == "vipu: there is no lease 'l8'. There are: l7.\n"


def test_partitions_are_listed_in_v_ipus_newest_layout(vipu: Vipu) -> None:
    rows = PartitionList(
        partitions=[
            partition("part1", 16, cluster="example", allocation="example"),
            partition("part3", 32, 2, cluster="example", allocation="example", num_ilds=2),
            partition(
                "p", 64, cluster="c", allocation="", ready_state=ReadyState.PENDING,
                routing=Routing.RINGSWNC, gw_routing=GatewayRouting.RING,
            ),
        ]
    )  # fmt: skip
    assert vipu("list partitions", rows) == 0
    assert (
        vipu.out
        == """\
Cluster | Allocation | Partition | ILDs | GW Routing | ILD Routing | Size | GCDs | State
------------------------------------------------------------------------------------------
example | example    | part1     | 1    | DEFAULT    | DNC         | 16   | 1    | ACTIVE
example | example    | part3     | 2    | DEFAULT    | DNC         | 32   | 2    | ACTIVE
c       | -          | p         | 1    | RING       | RINGSWNC    | 64   | 1    | PENDING
"""
    )


def test_the_wide_list_of_partitions_names_the_owner_last(vipu: Vipu) -> None:
    rows = PartitionList(partitions=[partition("p1", 4, owner="ann")])
    assert vipu("list partitions -o wide", rows) == 0
    assert vipu.out.splitlines()[0].endswith("| GCDs | State  | Owner")
    assert vipu.out.splitlines()[2].endswith("| ACTIVE | ann")
    assert vipu("list partitions", rows) == 0
    assert vipu.out.splitlines()[0].endswith("| State"), "scripts take the last column"


def test_an_empty_list_is_its_header(vipu: Vipu) -> None:
    assert vipu("list partition", PartitionList()) == 0
    assert len(vipu.out.splitlines()) == 2
    assert vipu("list partition --json", PartitionList()) == 0
    assert json.loads(vipu.out) == []


def test_a_list_is_of_the_named_cluster_and_allocation(vipu: Vipu) -> None:
    assert vipu("list partitions --cluster c --allocation a", PartitionList()) == 0
    assert vipu.calls == [("ListPartitions", ListRequest(cluster="c", allocation="a"))]


def test_partitions_as_json_have_the_shape_of_old_and_all_we_know(vipu: Vipu) -> None:
    one = partition("p1", 2, 2, num_ilds=2, ilds=[3, 0], reconfigurable=True)
    one = PartitionInfo(
        **{name: getattr(one, name) for name in one.__struct_fields__ if name != "gcds"},
        gcds=[[device(5, 3)], [device(5, 0)]],
    )
    for word in ("--json", "--showjson"):
        assert vipu(f"{word} list partition", PartitionList(partitions=[one])) == 0
    (entry,) = json.loads(vipu.out)
    assert entry["partition"] == {
        "id": "p1",
        "spec": {
            "cluster_id": "pod16",
            "allocation_id": "pod16",
            "ipus": [
                {
                    "ipulink_domain_topology_id": 3,
                    "ipulink_domain_routing_id": 0,
                    "topology_id": 5,
                    "routing_id": 0,
                },
                {
                    "ipulink_domain_topology_id": 0,
                    "ipulink_domain_routing_id": 1,
                    "topology_id": 5,
                    "routing_id": 1,
                },
            ],
            "ipulink_routing_type": "IRT_DNC",
            "sync_type": "ST_UNDEFINED",
            "num_gcds": 2,
            "num_ipulink_segments": 2,
            "reconfigurable": True,
            "gw_routing_type": "GRT_UNDEFINED",
            "num_replicas": 2,
        },
        "ready_state": "PS_ACTIVE",
        "ipuof_server_version": "",
    }
    assert set(entry["podwright"]) == set(PartitionInfo.__struct_fields__)
    assert entry["podwright"]["ready_state"] == "ACTIVE"


def test_get_partition_prints_its_settings_and_devices(vipu: Vipu) -> None:
    lease = LeaseInfo(id="l1", partition="p1", epoch=1, holder="poprun 77")
    assert vipu("get partition p1", partition(size=2, gcds=2, leases=[lease])) == 0
    assert vipu.calls == [("GetPartition", PartitionName(name="p1"))]
    assert (
        vipu.out
        == """\
Partition:      p1
Cluster:        pod16
Allocation:     pod16
State:          ACTIVE
Operation:      IDLE
Size:           2
GCDs:           2
Replicas:       2
ILDs:           1
ILD Routing:    DNC
GW Routing:     DEFAULT
Sync Type:      DEFAULT
Reconfigurable: no
Relocatable:    no
Movable:        no
Auto Reset:     yes, 0 of 3 done
Owner:          ann
Job:            -
Created:        -
Held by:        poprun 77 (l1)
Simulated:      yes

GCD | Device | Machine | IPU | Address
--------------------------------------------
0   | 0:0    | m0      | 0   | 10.0.0.1:8000
1   | 0:1    | m0      | 1   | 10.0.0.1:8001
"""
    )


def test_get_partition_prints_the_devices_of_one_gcd_alone(vipu: Vipu) -> None:
    assert vipu("get partition p1 --gcd 1", partition(size=2, gcds=2)) == 0
    assert vipu.out.splitlines()[-1].startswith("1   | 0:1")
    assert "0   | 0:0" not in vipu.out
    assert vipu("get partition p1 --gcd 2", partition(size=2, gcds=2)) == 1
    assert vipu.err == ("vipu: get partition p1: there is no GCD 2. It has GCDs 0 to 1.\n")


def test_ipuof_configuration_of_one_gcd_is_json_alone(vipu: Vipu) -> None:
    assert vipu("get partition p1 --gcd 1 --ipuof-configs", partition(size=2, gcds=2)) == 0
    config = json.loads(vipu.out)
    assert config["attributes"] == {"GCD Id": "1"}
    assert config["devices"] == [
        {
            "ip": "10.0.0.1",
            "server_port": 8001,
            "rdma_port": 9000,
            "device_id": 1,
            "ipulink_segment_id": 0,
            "routing_id": 1,
            "ipu_arch_id": 1,
            "ipu_id": 0,
            "chip_id": "c1",
        }
    ]


def test_ipuof_configuration_of_all_has_a_line_before_it(vipu: Vipu) -> None:
    assert vipu("get partition p1 --ipuof-configs", partition()) == 0
    heading, _, rest = vipu.out.partition("\n")
    assert heading == "IPUoF configuration of partition p1:"
    assert json.loads(rest)["attributes"] == {"GCD Id": "0"}
    assert vipu("get partition p1 --ipuof-configs --json", partition(size=4, gcds=2)) == 0
    assert [gcd["attributes"]["GCD Id"] for gcd in json.loads(vipu.out)] == ["0", "1"]


CLUSTERS = ClusterList(
    clusters=[
        ClusterInfo(
            name="pod16",
            family="ipu",
            size=16,
            free=12,
            machines=["m0", "m1"],
            ild_sizes=[8, 8],
            topology="looped",
            simulated=True,
        )
    ]
)
ALLOCATIONS = AllocationList(
    allocations=[AllocationInfo(name="a1", cluster="pod16", size=8, free=4, agents=["m0", "m1"])]
)


def test_clusters_are_listed_with_what_is_free(vipu: Vipu) -> None:
    assert vipu("list cluster", CLUSTERS) == 0
    assert (
        vipu.out
        == """\
Cluster | Family | Size | Free | ILDs | Topology | ILD Topology | Simulated
---------------------------------------------------------------------------
pod16   | ipu    | 16   | 12   | 2    | looped   | mesh         | yes
"""
    )
    assert vipu("list cluster --json", CLUSTERS) == 0
    assert len(json.loads(vipu.out)[0]["spec"]["ipu_link_domains"][0]["ipus"]) == 8
    assert vipu("get cluster pod16", CLUSTERS) == 0
    assert "ILD Sizes:    8 8\n" in vipu.out
    assert vipu("get cluster pod17", CLUSTERS) == 1
    assert vipu.err == "vipu: there is no cluster 'pod17'. There are: pod16.\n"


def test_allocations_stand_under_v_ipus_columns(vipu: Vipu) -> None:
    assert vipu("list allocations", ALLOCATIONS) == 0
    assert (
        vipu.out
        == """\
----------------------
Allocation ID | Agents
----------------------
a1            | m0 m1
----------------------
"""
    )
    assert vipu("list allocations --json", ALLOCATIONS) == 0
    assert json.loads(vipu.out)[0]["spec"] == {"cluster_id": "pod16", "agent_ids": ["m0", "m1"]}
    assert vipu("get allocation a1", ALLOCATIONS) == 0
    assert "Free:       4\n" in vipu.out


DEVICES = DeviceList(
    devices=[
        DeviceInfo(
            cluster="pod16",
            device=device(offset),
            allocation="a1",
            state="IN_USE" if offset else "FREE",
            partition="p1" if offset else "",
            attributes={"clock": "1330 MHz", "board type": "sim"},
        )
        for offset in (0, 1, 4)
    ]
)


def test_devices_are_listed_with_state_and_partition(vipu: Vipu) -> None:
    assert vipu("list devices", DEVICES) == 0
    assert (
        vipu.out
        == """\
Cluster | Device | Machine | IPU | State  | Allocation | Partition | Reason
---------------------------------------------------------------------------
pod16   | 0:0    | m0      | 0   | FREE   | a1         | -         | -
pod16   | 0:1    | m0      | 1   | IN_USE | a1         | p1        | -
pod16   | 0:4    | m1      | 0   | IN_USE | a1         | p1        | -
"""
    )
    assert vipu("list devices --json", DEVICES) == 0
    assert json.loads(vipu.out)[0]["device"]["chip_id"] == "c0"


def test_the_wide_list_of_devices_names_the_owner_of_each(
    vipu: Vipu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(client: Client, *_: object, **__: object) -> list[PartitionInfo]:
        return [partition("p1", 4, owner="ann")]

    monkeypatch.setattr(Client, "list_partitions", listed)
    assert vipu("list devices -o wide", DEVICES) == 0
    rows = [line.split(" | ") for line in vipu.out.splitlines() if "-+-" not in line]
    assert rows[0][-1] == "Owner"
    assert [row[-1] for row in rows[2:]] == ["-", "ann", "ann"]


def test_attributes_stand_under_v_ipus_columns(vipu: Vipu) -> None:
    assert vipu("list ipu-attrs", DEVICES) == 0
    assert (
        vipu.out
        == """\
Agent | IPU | Attribute  | Value
-----------------------------------
m0    | 0   | board type | sim
      |     | clock      | 1330 MHz
      | 1   | board type | sim
      |     | clock      | 1330 MHz
m1    | 0   | board type | sim
      |     | clock      | 1330 MHz
"""
    )
    assert vipu("list ipu-attr --json", DEVICES) == 0
    assert json.loads(vipu.out)[1] == {
        "agent": "m1",
        "ipus": {"0": {"attributes": {"clock": "1330 MHz", "board type": "sim"}}},
    }


def test_leases_are_listed_with_their_holders(vipu: Vipu) -> None:
    leases = LeaseList(
        leases=[
            LeaseInfo(
                id="l1", partition="p1", epoch=2, holder="poprun", owner="ann", expires_in=7.6
            )
        ]
    )
    assert vipu("list leases", leases) == 0
    assert (
        vipu.out
        == """\
Lease | Partition | Devices | Holder | Owner | Epoch | Ends in
--------------------------------------------------------------
l1    | p1        | all     | poprun | ann   | 2     | 8 s
"""
    )


def test_control_characters_do_not_reach_the_terminal(vipu: Vipu) -> None:
    bad = PartitionList(partitions=[partition("p\x1b[31m", owner="x")])
    assert vipu("list partitions", bad) == 0
    assert "\x1b" not in vipu.out


@pytest.mark.parametrize("line", ["--server-version", "--server-version list partitions"])
def test_server_version_has_the_two_lines_that_tools_cut(vipu: Vipu, line: str) -> None:
    assert vipu(line) == 0
    assert vipu.out == "version: 1.2.3\nhost: localhost:8090\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "missing VERB: create, list, get, reset, remove, explain or events; see --help"),
        ("lst partitions", "unknown VERB 'lst'; did you mean 'list'?"),
        ("list", "missing NOUN; see --help"),
        ("list partion", "unknown NOUN 'partion'; did you mean 'partition'?"),
        ("create cluster c", "unknown NOUN 'cluster'; it is one of: partition, partitions"),
        ("get partition", "missing NAME; see --help"),
        ("get partition p1 p2", "unexpected 'p2'; see --help"),
        ("list partitions --jsn", "unknown option '--jsn'; did you mean '--json'?"),
        ("--api-port 99999 list partitions", "'99999' is not a port from 1 to 65535"),
        ("list partitions --timeout soon", "'soon' is not a time in seconds above 0"),
        ("get partition p1 --gcd x", "'x' is not a whole number, 0 or more"),
    ],
)
def test_wrong_words_get_one_line_and_no_call(vipu: Vipu, line: str, words: str) -> None:
    assert vipu(line) == 2
    assert (vipu.calls, vipu.out) == ([], "")
    assert words in vipu.err
    assert vipu.err.count("\n") == 1


Connect = Callable[[ServerNames], FoundServer]


@pytest.mark.parametrize(
    "words",
    [
        ["-H", "h", "--api-port", "7", "--timeout", "3", "list", "partitions"],
        ["list", "partitions", "--api-host", "h", "--api-port=7", "--timeout=3"],
        ["-H", "other", "list", "partitions", "-Hh", "--api-port", "7", "--timeout", "3"],
    ],
)
def test_options_stand_before_and_after_the_verb(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from podwright.cli.shared._server_options import chosen

    seen: list[ServerNames] = []

    def connect(arguments: ServerNames) -> FoundServer:
        seen.append(arguments)
        transport = FakeTransport(lambda name, request: PartitionList())
        return FoundServer(Client(transport), ServerInfo(version="1"), "named")

    assert main(words, connect) == 0
    assert chosen(seen[0]) == ServerOptions("h", "7")
    assert seen[0].timeout == 3
    assert capsys.readouterr().err == ""


def test_half_of_a_users_identity_is_refused_not_ignored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--api-access-key", "s3cret", "list", "partitions"]) == 2
    err = capsys.readouterr().err
    assert "a user id and an access key belong together, and there is no user id" in err
    assert "s3cret" not in err


def test_help_names_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "vipu create partition p1 --size 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "module"), [("vipu", "partitions._verbs"), ("vipu_admin", "admin._verbs")]
)
def test_each_verb_and_noun_has_its_function(command: str, module: str) -> None:
    parser = importlib.import_module(f"podwright.cli.{command}").build_parser()
    actions = importlib.import_module(f"podwright.cli.{module}").ACTIONS
    named = {place.get_default("action") for place in _parsers(parser)} - {None}
    assert len(named) > 15
    assert named <= actions.keys()


def _parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:
        for child in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _parsers(child)


@pytest.mark.parametrize("command", ["vipu", "vipu_admin"])
def test_the_parser_of_a_verb_alone_reads_as_that_of_all(command: str) -> None:
    build = importlib.import_module(f"podwright.cli.{command}").build_parser
    whole = {place.prog: place.format_help() for place in _parsers(build())}
    lone = 0
    for words in (prog.split()[1:] for prog in whole):
        smaller = {place.prog: place.format_help() for place in _parsers(build(words))}
        prog = " ".join([command.replace("_", "-"), *words])
        assert smaller[prog] == whole[prog]
        lone += len(smaller) < len(whole)
    assert lone > 15
