"""`vipu-admin` word by word: what it asks of a server, what it prints, and how it refuses."""

from __future__ import annotations

import argparse
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.cli.vipu_admin import main
from podwright.client import Client, FakeTransport, Found
from podwright.wire import (
    AgentInfo,
    AgentList,
    AgentRequest,
    AllocationInfo,
    AllocationRequest,
    CheckResult,
    ClusterInfo,
    ClusterRequest,
    ClusterTest,
    DiscoveredAgent,
    DiscoveredList,
    Empty,
    ListRequest,
    MachineName,
    Named,
    NewUser,
    NotFound,
    PartitionList,
    ServerInfo,
    UserInfo,
    UserList,
    UserRequest,
    Value,
)

Run = Callable[..., tuple[int, str, str]]


class Server:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Value]] = []
        self.answers: dict[str, Value | Exception] = {}

    def handle(self, method: str, request: Value) -> Value:
        self.asked.append((method, request))
        answer = self.answers.get(method, Empty())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def connect(self, _: argparse.Namespace) -> Found:
        return Found(Client(FakeTransport(self.handle)), ServerInfo(version="1"), "named")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def run(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    monkeypatch.chdir(tmp_path)

    def go(line: str) -> tuple[int, str, str]:
        try:
            code = main(line.split(), server.connect)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = capsys.readouterr()
        return code, out, err

    return go


AGENT = AgentInfo(
    name="ag1", host="10.1.2.1", port=8080, cluster="c1", state="UP", devices=4, last_seen=1.2
)
CLUSTER = ClusterInfo(name="c1", family="ipu", size=128, free=128)


def test_agents_are_created_as_v_ipu_prints_it(server: Server, run: Run) -> None:
    server.answers["CreateAgent"] = AGENT
    said = run("create agent ag1 --host 10.1.2.1 --port 8080")
    assert said == (0, "create agent (ag1): success.\n", "")
    assert server.asked == [("CreateAgent", AgentRequest(name="ag1", host="10.1.2.1", port=8080))]


def test_the_two_rack_line_of_a_real_site(server: Server, run: Run) -> None:
    server.answers["CreateCluster"] = CLUSTER
    names = [f"ag.{rack}.{place}" for rack in (13, 14) for place in range(1, 17)]
    code, out, _ = run(
        f"create cluster cl128 --agents {','.join(names)} --num-ipulinkdomains 2 "
        "--topology torus --cluster-topology looped"
    )
    assert (code, out) == (0, "create cluster (c1): success.\n")
    assert server.asked == [
        (
            "CreateCluster",
            ClusterRequest(
                name="cl128", agents=names, num_ilds=2, ild_topology="torus", topology="looped"
            ),
        )
    ]


def test_a_users_key_is_shown_once_and_kept_privately(
    server: Server, run: Run, tmp_path: Path
) -> None:
    user = UserInfo(name="alice", allocations=["a1"])
    server.answers["CreateUser"] = NewUser(user=user, access_key="k3y_")
    code, out, err = run("create user alice --allocations a1,a2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "create user (alice): success. Access key is 'k3y_'."
    assert len(lines) == 3
    path = tmp_path / "alice.vipu-cli.hcl"
    assert path.read_text() == 'api-user-id="alice"\napi-access-key="k3y_"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    request = UserRequest(name="alice", allocations=["a1", "a2"])
    assert server.asked == [("CreateUser", request)]
    code, _, err = run("create user alice")
    assert (code, "is there already" in err, len(server.asked)) == (2, True, 1)


def test_allocations(server: Server, run: Run) -> None:
    server.answers["CreateAllocation"] = AllocationInfo(name="a1", cluster="c1", size=8, free=8)
    run("create allocation a1 --cluster c1 --size 8 --users alice,bob")
    run("create allocation a1 --cluster c1 --agents ag1,ag2")
    assert [request for _, request in server.asked] == [
        AllocationRequest(name="a1", cluster="c1", size=8, users=["alice", "bob"]),
        AllocationRequest(name="a1", cluster="c1", agents=["ag1", "ag2"]),
    ]


@pytest.mark.parametrize(
    ("line", "method", "request_", "says"),
    [
        ("remove agent ag1", "RemoveAgent", Named(name="ag1"), "remove agent (ag1)"),
        ("delete cluster c1", "RemoveCluster", Named(name="c1"), "remove cluster (c1)"),
        ("remove allocation a1", "RemoveAllocation", Named(name="a1"), "remove allocation (a1)"),
        ("remove user bob", "RemoveUser", Named(name="bob"), "remove user (bob)"),
        ("drain machine ag1", "DrainMachine", MachineName(name="ag1"), "drain machine (ag1)"),
        ("resume machine ag1", "ResumeMachine", MachineName(name="ag1"), "resume machine (ag1)"),
    ],
)
def test_words_that_answer_with_success(
    server: Server, run: Run, line: str, method: str, request_: Value, says: str
) -> None:
    assert run(line) == (0, f"{says}: success.\n", "")
    assert server.asked == [(method, request_)]


def test_lists_as_tables_and_as_json(server: Server, run: Run) -> None:
    server.answers["ListAgents"] = AgentList(agents=[AGENT])
    server.answers["ListUsers"] = UserList(users=[UserInfo(name="alice")])
    _, out, _ = run("list agents")
    header, _, row = out.splitlines()
    assert [cell.strip() for cell in header.split("|")] == [
        "Agent", "Host", "Port", "Cluster", "State", "Devices", "Last Seen", "Reason",
    ]  # fmt: skip
    assert [cell.strip() for cell in row.split("|")] == [
        "ag1", "10.1.2.1", "8080", "c1", "UP", "4", "1 s ago", "-",
    ]  # fmt: skip
    _, out, _ = run("list agents --json")
    assert json.loads(out)[0]["state"] == "UP"
    _, out, _ = run("list users")
    assert out.splitlines()[2].split() == ["alice", "|", "user", "|", "-", "|", "all"]
    _, out, _ = run("get agent ag1")
    assert "Address:" in out
    code, _, err = run("get agent ag2")
    expected = "vipu-admin: get agent ag2: there is no agent ag2. there are: ag1.\n"
    assert (code, err) == (1, expected)


def test_discovered_agents_stand_under_v_ipus_columns(server: Server, run: Run) -> None:
    server.answers["DiscoverAgents"] = DiscoveredList(
        agents=[DiscoveredAgent(name="ag1", host="10.1.2.1", port=8081, interface="eno1", seen=2.4)]
    )
    _, out, _ = run("discover agent")
    header, _, row = out.splitlines()
    assert [cell.strip() for cell in header.split("|")] == [
        "Host", "Port", "Network Interface", "Time Since Last Seen", "Agent Auto-Add ID",
    ]  # fmt: skip
    assert row.split() == ["10.1.2.1", "|", "8081", "|", "eno1", "|", "2s", "|", "ag1"]


def test_a_test_says_what_is_wrong_and_fails(server: Server, run: Run) -> None:
    good = CheckResult(check="connectivity", machine="ag1", ok=True)
    unknown = CheckResult(check="cabling", machine="ag1", problem="cannot tell")
    server.answers["TestCluster"] = ClusterTest(cluster="c1", results=[good, unknown])
    code, out, _ = run("test cluster c1")
    assert (code, out.splitlines()[-1]) == (0, "test cluster (c1): success.")
    bad = CheckResult(check="cabling", machine="ag1", ok=False, problem="port up leads to ag3")
    server.answers["TestCluster"] = ClusterTest(cluster="c1", results=[good, bad])
    code, out, err = run("test cluster c1")
    assert (code, err) == (1, "test cluster (c1): failed: 1 of 2 checks.\n")
    assert "ag1     | cabling      | FAILED | port up leads to ag3" in out


def test_words_about_partitions_are_vipus(server: Server, run: Run) -> None:
    server.answers["ListPartitions"] = PartitionList()
    code, out, _ = run("list partitions")
    assert (code, out.split(" | ")[0]) == (0, "Cluster")
    assert server.asked == [("ListPartitions", ListRequest())]


def test_refusals_are_one_line(server: Server, run: Run) -> None:
    server.answers["CreateCluster"] = NotFound("there is no agent ag9", asked="create cluster c1")
    code, out, err = run("create cluster c1 --agents ag9")
    assert (code, out) == (1, "")
    assert err == "vipu-admin: create cluster c1: there is no agent ag9.\n"
    for line, says in (
        ("create agen ag1", "did you mean 'agent'?"),
        ("create agent ag1 --prot 1", "did you mean '--port'?"),
        ("create agent ag1 --port 99999", "is not a port"),
        ("", "missing VERB"),
    ):
        code, out, err = run(line)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err
