"""`vipu-admin` word by word: its requests to a server, its output, and its refusals."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.cli.shared._server_options import ServerNames
from podwright.cli.vipu_admin import main
from podwright.client import Client, FakeTransport, FoundServer
from podwright.errors import NotFound
from podwright.store import Snapshot, backup_text
from podwright.wire import (
    AgentInfo,
    AgentList,
    AgentRequest,
    AllocationInfo,
    AllocationRequest,
    BackupReply,
    CheckResult,
    ClusterChange,
    ClusterInfo,
    ClusterList,
    ClusterRequest,
    ClusterTest,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    DiscoveredAgent,
    DiscoveredList,
    DrainInfo,
    DrainRequest,
    Empty,
    EventList,
    ListRequest,
    MachineName,
    MoveRow,
    MovesAllowed,
    MoveTable,
    Named,
    NewUser,
    PartitionList,
    QuotaInfo,
    QuotaList,
    ServerInfo,
    ShareInfo,
    ShareList,
    ShareRequest,
    UserInfo,
    UserList,
    UserRequest,
    Value,
)

Run = Callable[..., tuple[int, str, str]]


class Server:
    """Gives prepared answers, and records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Value]] = []
        self.answers: dict[str, Value | Exception] = {}

    def handle(self, method: str, request: Value) -> Value:
        self.asked.append((method, request))
        answer = self.answers.get(method, Empty())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def connect(self, _: ServerNames) -> FoundServer:
        return FoundServer(Client(FakeTransport(self.handle)), ServerInfo(version="1"), "named")


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


def test_machines_join_and_replace_one_another(server: Server, run: Run) -> None:
    made = ClusterInfo(name="c1", family="ipu", size=12, free=8, machines=["ag1"], ild_sizes=[12])
    server.answers["ChangeCluster"] = made
    server.answers["ListClusters"] = ClusterList(clusters=[made])
    assert run("add machine ag2,ag3 --cluster c1 --dry-run") == (
        0,
        "add machine (ag2,ag3): cluster c1 would have 12 devices in link domains of 12.\n",
        "",
    )
    code, out, _ = run("replace machine ag1 --by ag2")
    assert (code, out.splitlines()[0]) == (0, "replace machine (ag1): success.")
    assert [request for method, request in server.asked if method == "ChangeCluster"] == [
        ClusterChange(name="c1", add=["ag2", "ag3"], dry_run=True),
        ClusterChange(name="c1", replace="ag1", by="ag2"),
    ]


def test_an_allocation_is_created_by_size_or_by_agents(server: Server, run: Run) -> None:
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
        (
            "remove quota --user bob",
            "SetQuota",
            QuotaInfo(user="bob"),
            "remove quota (bob)",
        ),
        ("resume machine ag1", "ResumeMachine", MachineName(name="ag1"), "resume machine (ag1)"),
    ],
)
def test_each_action_answers_with_v_ipus_line_of_success(
    server: Server, run: Run, line: str, method: str, request_: Value, says: str
) -> None:
    server.answers["SetQuota"] = QuotaInfo(user="bob")
    server.answers["ListQuotas"] = QuotaList(quotas=[QuotaInfo(user="bob", devices=4)])
    assert run(line) == (0, f"{says}: success.\n", "")
    assert server.asked[-1] == (method, request_)
    code, out, _ = run(f"{line} --json")
    assert (code, isinstance(json.loads(out), dict)) == (0, True)


def test_lists_are_printed_as_tables_and_as_json(server: Server, run: Run) -> None:
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
    expected = "vipu-admin: get agent ag2: there is no agent ag2. There are: ag1.\n"
    assert (code, err) == (1, expected)


def test_agents_are_listed_in_the_order_in_which_people_count(server: Server, run: Run) -> None:
    agents = [AgentInfo(name=f"ag{number}", host="h", port=1) for number in (1, 10, 2)]
    server.answers["ListAgents"] = AgentList(agents=agents)
    assert run("list agents -o name")[1] == "ag1\nag2\nag10\n"


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


def test_a_quota_is_set_listed_and_removed(server: Server, run: Run) -> None:
    both = QuotaInfo(user="bob", allocation="a1", devices=16, used_devices=4, used_partitions=1)
    server.answers["SetQuota"] = both
    server.answers["ListQuotas"] = QuotaList(
        quotas=[both, QuotaInfo(allocation="a1", partitions=0)]
    )
    said = run("set quota --user bob --allocation a1 --devices 16")
    assert said == (0, "set quota (bob in a1): success.\n", "")
    assert server.asked == [("SetQuota", QuotaInfo(user="bob", allocation="a1", devices=16))]
    run("set quota --allocation a1 --devices 8 --partitions 0")
    assert server.asked[-1][1] == QuotaInfo(allocation="a1", devices=8, partitions=0)
    _, out, _ = run("list quotas --allocation a1")
    assert server.asked[-1] == ("ListQuotas", ListRequest(allocation="a1"))
    rows = [[cell.strip() for cell in line.split(" | ")] for line in out.splitlines()]
    assert rows[0] == ["User", "Allocation", "Devices", "Partitions"]
    assert rows[2:] == [
        ["bob", "a1", "4 of 16", "1, no limit"],
        ["all together", "a1", "0, no limit", "0 of 0"],
    ]
    _, out, _ = run("list quotas --json")
    assert json.loads(out)[0]["devices"] == 16
    code, _, err = run("remove quota --user eve")
    assert (code, "there is no quota of eve" in err) == (1, True)
    code, _, err = run("set quota --user eve")
    assert (code, "no limit is named" in err) == (2, True)


def test_weights_of_the_common_queue_are_set_listed_and_removed(server: Server, run: Run) -> None:
    slurm = ShareInfo(guest="slurm", weight=3, source="STORED", active=True)
    server.answers["SetShare"] = slurm
    people = ShareInfo(guest="people", weight=0.5, source="OPTION", active=True)
    silent = ShareInfo(guest="kubernetes c1")
    server.answers["ListShares"] = ShareList(shares=[silent, people, slurm])
    said = run("set share --guest slurm --weight 3")
    assert said == (0, "set share (slurm): success. Its weight is 3.\n", "")
    assert server.asked == [("SetShare", ShareRequest(guest="slurm", weight=3.0))]
    _, out, _ = run("set share --guest slurm --weight 3 --json")
    assert json.loads(out) == {
        "guest": "slurm", "weight": 3.0, "source": "STORED", "active": True
    }  # fmt: skip
    _, out, _ = run("list shares")
    rows = [[cell.strip() for cell in line.split(" | ")] for line in out.splitlines()]
    assert rows[0] == ["Guest", "Weight", "From", "Active"]
    assert rows[2:] == [
        ["kubernetes c1", "1", "nobody set it", "no"],
        ["people", "0.5", "vipu-server --share", "yes"],
        ["slurm", "3", "set by an administrator", "yes"],
    ]
    _, out, _ = run("list shares --json")
    assert [share["source"] for share in json.loads(out)] == ["DEFAULT", "OPTION", "STORED"]
    server.answers["SetShare"] = ShareInfo(guest="slurm", weight=2, source="OPTION")
    _, out, _ = run("remove share --guest slurm")
    assert server.asked[-1] == ("SetShare", ShareRequest(guest="slurm", remove=True))
    assert out.splitlines()[:2] == [
        "remove share (slurm): success. Its weight is 2.",
        "That is what vipu-server --share says.",
    ]
    assert "no scheduler of this name calls the server" in out
    code, _, err = run("remove share --guest people")
    assert (code, "nobody has set the weight of people" in err) == (1, True)
    assert run("set share --guest slurm")[0] == 2
    for wrong in ("many", "nan", "inf"):
        code, _, err = run(f"set share --guest slurm --weight {wrong}")
        assert (code, f"'{wrong}' is not a number" in err) == (2, True)


def test_moves_are_shown_and_forbidden(server: Server, run: Run) -> None:
    row = MoveRow(partition="p1", owner="ann", size=4, seconds=30, waiter="w7", to="ag3")
    server.answers["ShowMoves"] = MoveTable(moves=[row], movable=1, done=2, failed=1)
    server.answers["AllowMoves"] = MoveTable(allowed=False, movable=1)
    code, out, _ = run("moves")
    assert code == 0
    assert "p1" in out
    assert "PLANNED" in out
    assert "1 could be moved now; 2 moved" in out
    assert run("moves --never --dry-run")[1] == out
    assert [method for method, _ in server.asked] == ["ShowMoves", "ShowMoves"]
    code, out, _ = run("moves --never")
    assert (code, out.startswith("No launch is asked to move;")) == (0, True)
    assert server.asked[-1] == ("AllowMoves", MovesAllowed(allowed=False))
    _, out, _ = run("moves --allow --json")
    assert server.asked[-1] == ("AllowMoves", MovesAllowed(allowed=True))
    assert json.loads(out)["movable"] == 1
    assert run("moves --allow --never")[0] == 2


def test_a_machine_is_drained_and_what_stays_on_it_is_said(server: Server, run: Run) -> None:
    places = [DeviceRef(domain=0, offset=at, machine=f"ag{at // 4 + 1}") for at in range(8)]
    server.answers["ListClusters"] = ClusterList(
        clusters=[
            ClusterInfo(
                name="c1",
                family="ipu",
                size=8,
                free=6,
                drained=["ag2"],
                drains=[DrainInfo(machine="ag2", reason="fan 3 is loud", who="root", at=9.0)],
            )
        ]
    )
    server.answers["ListDevices"] = DeviceList(
        devices=[
            DeviceInfo(
                cluster="c1", device=ref, allocation="a1",
                state="IN_USE" if ref.offset < 2 else "FREE",
                partition="p1" if ref.offset < 2 else "",
            )
            for ref in places
        ]
    )  # fmt: skip
    said = run("drain machine ag1 --dry-run")
    assert said == (
        0,
        "drain machine (ag1): would take 2 free devices out; it still has p1 on it.\n",
        "",
    )
    assert "DrainMachine" not in [name for name, _ in server.asked]
    code, out, _ = run("drain machine ag1 --reason its-PSU")
    assert (code, out) == (0, "drain machine (ag1): success.\nIt still has p1 on it.\n")
    assert ("DrainMachine", DrainRequest(name="ag1", reason="its-PSU")) in server.asked
    _, out, _ = run("drain machine ag2 --json")
    assert json.loads(out)["partitions"] == []
    _, out, _ = run("list machines")
    rows = [[cell.strip() for cell in line.split(" | ")] for line in out.splitlines()[2:]]
    assert rows == [
        ["ag1", "c1", "a1", "UP", "4", "2", "p1", "-"],
        ["ag2", "c1", "a1", "DRAINED", "4", "4", "-", "fan 3 is loud"],
    ]
    code, _, err = run("drain machine ag9")
    assert (code, "there is no machine ag9. There are: ag1, ag2" in err) == (1, True)


def test_a_backup_is_checked_before_it_is_written(server: Server, run: Run, tmp_path: Path) -> None:
    text = backup_text(Snapshot(1, 0.0, {("partition", "p1"): b"{}"}))
    server.answers["Backup"] = BackupReply(content=text)
    assert run("backup store b") == (0, "backup store (b): success. 1 record.\n", "")
    assert (tmp_path / "b").read_text() == text
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
    server.answers["Backup"] = BackupReply(content=text[:-20])
    code, _, err = run("backup store c --json")
    assert (code, "damaged or cut off" in err, (tmp_path / "c").exists()) == (2, True, False)


def test_events_are_vipus_too(server: Server, run: Run) -> None:
    server.answers["ListEvents"] = EventList()
    assert run("events") == (0, "", "")
    assert run("remove agent events")[1] == "remove agent (events): success.\n"


def test_verbs_that_are_vipus_speak_as_what_was_typed(run: Run) -> None:
    for verb in ("reset", "explain", "events"):
        code, out, _ = run(f"{verb} --help")
        assert (code, f"usage: vipu-admin {verb} " in out) == (0, True)
    _, _, err = run("get partition nowhere")
    assert err.startswith("vipu-admin: ")
    _, _, err = run("list partitions --bad")
    assert err.startswith("vipu-admin ")


def test_words_about_partitions_are_vipus(server: Server, run: Run) -> None:
    server.answers["ListPartitions"] = PartitionList()
    code, out, _ = run("list partitions")
    assert (code, out.split(" | ")[0]) == (0, "Cluster")
    assert server.asked == [("ListPartitions", ListRequest())]


def test_refusals_are_one_line(server: Server, run: Run) -> None:
    server.answers["CreateCluster"] = NotFound(
        "there is no agent ag9", operation="create cluster c1"
    )
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
