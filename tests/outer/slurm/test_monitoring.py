"""Prometheus scrapes a server, an agent and Slurm's service: each panel of the board has data, each
alert fires where it should and nowhere else."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podwright import monitoring
from podwright.client import Client, UnixTransport
from podwright.wire import AcquireRequest, PartitionSpec
from tests.outer.lab import LabError, poll
from tests.outer.slurm.native import NativeLab
from tests.ports import free_port
from tests.whole.machines import Machines

pytestmark = pytest.mark.slurm


class WatchedLab(NativeLab):
    """A Slurm whose server and service have figures."""

    def __init__(self, **options: Any) -> None:
        self.server_port, self.service_port = free_port(), free_port()
        where = f"127.0.0.1:{self.service_port}"
        super().__init__(configure=["--metrics", where], **options)

    @property
    def agent_key(self) -> Path:
        return self.folder / "agent.key"

    def start_server(self) -> None:
        self.agent_key.write_text("a key that only we two know\n")
        self.agent_key.chmod(0o600)
        port, key = str(self.server_port), str(self.agent_key)
        self.serve("--preset", self.preset, "--http-port", port, "--agent-key", key)


@pytest.fixture(scope="module")
def lab() -> Iterator[WatchedLab]:
    with WatchedLab(nodes=1, cpus=8) as made:
        yield made


def _ask(port: int, query: str) -> list[Any]:
    words = urllib.parse.urlencode({"query": query})
    address = f"http://127.0.0.1:{port}/api/v1/query?{words}"
    with urllib.request.urlopen(address, timeout=300) as said:
        found: list[Any] = json.load(said)["data"]["result"]
        return found


def test_each_panel_of_the_board_has_data(lab: WatchedLab, tmp_path: Path) -> None:
    agent_port, port = free_port(), free_port()
    machines = Machines(tmp_path, "--agent-key", str(lab.agent_key))
    machines.start("m1", "--http-port", str(agent_port))
    scrape = monitoring.read("prometheus.yml")
    for ours, theirs in ((8091, lab.server_port), (8081, agent_port), (8093, lab.service_port)):
        scrape = scrape.replace(f"127.0.0.1:{ours}", f"127.0.0.1:{theirs}")
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n" + scrape
    )
    (tmp_path / "podwright-rules.yml").write_text(monitoring.read("podwright-rules.yml"))
    prometheus = subprocess.Popen(
        [
            *["prometheus", f"--config.file={tmp_path}/prometheus.yml"],
            *[f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"],
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        job = lab.batch("sleep 600", "--ipus=4")
        lab.wait_state(job, "RUNNING")

        def up() -> bool:
            try:
                return len(_ask(port, 'up{job=~"podwright-.*"} == 1')) == 3
            except OSError:
                return False

        poll("three that answer", up, seconds=300)
        board = json.loads(monitoring.read("podwright-board.json"))
        queries = [
            target["expr"].replace("$pod", ".*")
            for panel in board["panels"]
            for target in panel.get("targets", ())
        ]
        assert len(queries) > 20
        queries += [query.replace('pod=~".*"', 'pod=~"pod1"') for query in queries]

        lab.command("vipu", "get", "partition", "none", user="root")  # one refusal
        words = ["--host", "127.0.0.1", "--port", str(machines.ports["m1"])]
        done = lab.command("vipu_admin", "create", "agent", "m1", *words, user="root")
        assert done.returncode == 0, done.stderr
        client = Client(UnixTransport(str(lab.server_socket)))
        spec = PartitionSpec(name=f"slurm_{job}", size=4)
        lease = client.acquire(AcquireRequest(spec=spec, ttl=3600)).lease
        missing = [""]

        def all_there() -> bool:
            missing[:] = [query for query in queries if not _ask(port, query)]
            return not missing

        try:
            poll("data for each panel", all_there, seconds=300)
        except LabError:
            raise AssertionError(f"no data: {missing}") from None
        firing = {one["metric"]["alertname"] for one in _ask(port, 'ALERTS{alertstate="firing"}')}
        assert not firing
        client.release(lease.id, lease.epoch)
        client.close()
        lab.ok("scancel", str(job))
    finally:
        prometheus.terminate()
        prometheus.wait(300)
        machines.end()


#: The alert, the series that lead to it, and after how long; one value a minute.
FIRES: dict[str, tuple[dict[str, str], str]] = {
    "PodwrightDown": ({'up{job="podwright-agent",instance="m1"}': "1 1 0x20"}, "6m"),
    "PodwrightNoActiveServer": ({'podwright_active{instance="a"}': "0x20"}, "3m"),
    "PodwrightTwoActiveServers": (
        {'podwright_active{instance="a"}': "1x20", 'podwright_active{instance="b"}': "1x20"},
        "3m",
    ),
    "PodwrightServerRestarts": ({"podwright_epoch": "1 2 3 4 5 6x20"}, "7m"),
    "PodwrightInternalErrors": ({'podwright_errors_total{code="INTERNAL"}': "0 0 1x20"}, "4m"),
    "PodwrightSlowCalls": (
        {
            'podwright_call_duration_seconds_bucket{method="ListDevices",le="1"}': "0x30",
            'podwright_call_duration_seconds_bucket{method="ListDevices",le="2.5"}': "0+10x30",
            'podwright_call_duration_seconds_bucket{method="ListDevices",le="+Inf"}': "0+10x30",
        },
        "20m",
    ),
    "PodwrightMachineDown": ({'podwright_machine_down{machine="m1",cluster="c"}': "1x20"}, "7m"),
    "PodwrightAgentUnhealthy": ({'podwright_agent_healthy{machine="m1"}': "0x20"}, "4m"),
    "PodwrightPartitionsInError": (
        {'podwright_partitions{cluster="c",state="ERROR"}': "1x20"},
        "12m",
    ),
    "PodwrightFencing": ({'podwright_leases{cluster="c",state="FENCING"}': "2x30"}, "17m"),
    "PodwrightWaitsBesideFree": (
        {
            "podwright_waiters": "3x90",
            'podwright_devices{state="FREE"}': "30x90",
            'podwright_devices{state="IN_USE"}': "34x90",
        },
        "65m",
    ),
    "PodwrightSlurmCountsStale": ({"podwright_slurm_counts_current": "0x20"}, "7m"),
    "PodwrightJobsWithoutDevices": ({"podwright_slurm_jobs_bare_total": "0 0 1x20"}, "4m"),
    "PodwrightStepsEnded": ({"podwright_slurm_jobs_unproven_total": "0 0 2x20"}, "4m"),
}


#: Two pods on one Prometheus: the series, after how long, and what fires of which pod.
_ACTIVE_EACH = {
    'podwright_active{pod="p1",instance="a"}': "1x20",
    'podwright_active{pod="p1",instance="b"}': "0x20",
    'podwright_active{pod="p2",instance="c"}': "1x20",
    'podwright_active{pod="p2",instance="d"}': "0x20",
}
TWO_PODS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "one active server in each": (_ACTIVE_EACH, "5m", {}),
    "one active server in each, no standby, names of the targets alone": (
        {
            'up{job="podwright-server",pod="p1"}': "1x20",
            'up{job="podwright-server",pod="p2"}': "1x20",
            'podwright_active{pod="p1"}': "1x20",
            'podwright_active{pod="p2"}': "1x20",
        },
        "5m",
        {},
    ),
    "targets without a name, servers with their own": (
        {
            'up{job="podwright-server",instance="a"}': "1x20",
            'podwright_active{pod="host1",instance="a"}': "1x20",
        },
        "5m",
        {},
    ),
    "two active servers in the second": (
        _ACTIVE_EACH | {'podwright_active{pod="p2",instance="d"}': "1x20"},
        "5m",
        {"PodwrightTwoActiveServers": "p2"},
    ),
    "the first stands by": (
        _ACTIVE_EACH | {'podwright_active{pod="p1",instance="a"}': "0x20"},
        "5m",
        {"PodwrightNoActiveServer": "p1"},
    ),
    "the first answers no more": (
        {
            'up{job="podwright-server",pod="p1",instance="a"}': "0x20",
            'up{job="podwright-server",pod="p2",instance="c"}': "1x20",
            'podwright_active{pod="p2",instance="c"}': "1x20",
        },
        "8m",
        {"PodwrightDown": "p1", "PodwrightNoActiveServer": "p1"},
    ),
    "slow calls of the first among many of the second": (
        {
            'podwright_call_duration_seconds_bucket{pod="p1",method="Get",le="1"}': "0x30",
            'podwright_call_duration_seconds_bucket{pod="p1",method="Get",le="2.5"}': "0+10x30",
            'podwright_call_duration_seconds_bucket{pod="p1",method="Get",le="+Inf"}': "0+10x30",
            'podwright_call_duration_seconds_bucket{pod="p2",method="Get",le="1"}': "0+9999x30",
            'podwright_call_duration_seconds_bucket{pod="p2",method="Get",le="+Inf"}': "0+9999x30",
        },
        "20m",
        {"PodwrightSlowCalls": "p1"},
    ),
    "clusters of one name, one partition in error": (
        {
            'podwright_partitions{pod="p1",cluster="c",state="ERROR"}': "0x20",
            'podwright_partitions{pod="p2",cluster="c",state="ERROR"}': "1x20",
        },
        "12m",
        {"PodwrightPartitionsInError": "p2"},
    ),
    "requests wait in the full one beside a free one": (
        {
            'podwright_waiters{pod="p1"}': "3x90",
            'podwright_devices{pod="p1",state="IN_USE"}': "64x90",
            'podwright_waiters{pod="p2"}': "0x90",
            'podwright_devices{pod="p2",state="FREE"}': "64x90",
        },
        "65m",
        {},
    ),
    "requests wait beside free devices in a small one, and the other is large and full": (
        {
            'podwright_waiters{pod="p1"}': "3x90",
            'podwright_devices{pod="p1",state="FREE"}': "64x90",
            'podwright_waiters{pod="p2"}': "0x90",
            'podwright_devices{pod="p2",state="IN_USE"}': "1024x90",
        },
        "65m",
        {"PodwrightWaitsBesideFree": "p1"},
    ),
}


@pytest.mark.parametrize("case", TWO_PODS)
def test_alerts_are_of_each_pod_alone(case: str, tmp_path: Path) -> None:
    series, after, fires = TWO_PODS[case]
    samples = [
        {"labels": f'{{alertname="{alert}",pod="{pod}"}}', "value": 1}
        for alert, pod in fires.items()
    ]
    judge(tmp_path, series, after, "count by (alertname, pod)", samples)


@pytest.mark.parametrize("alert", FIRES)
def test_each_alert_fires_alone(alert: str, tmp_path: Path) -> None:
    series, after = FIRES[alert]
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    judge(tmp_path, series, after, "count by (alertname)", samples)


def judge(
    tmp_path: Path, series: dict[str, str], after: str, count: str, samples: list[dict[str, Any]]
) -> None:
    """promtool: with these series these alerts fire after that time, and none at its beginning."""
    (tmp_path / "podwright-rules.yml").write_text(monitoring.read("podwright-rules.yml"))
    # promtool names what fires too much: `ALERTS` of all rules at that time.
    firing = f'{count} (ALERTS{{alertstate="firing"}})'
    test = {
        "rule_files": ["podwright-rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": firing,
                        "eval_time": after,
                        "exp_samples": samples,
                    },
                    {
                        "expr": firing,
                        "eval_time": "0m",
                        "exp_samples": [],
                    },
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))  # YAML is a superset of JSON
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_its_case() -> None:
    rules = monitoring.read("podwright-rules.yml")
    assert [line.split()[-1] for line in rules.splitlines() if "alert:" in line] == list(FIRES)
