"""The board is what its generator writes; rules and board ask for figures that there are."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from tools.generate_board import BOARD, board

from podwright import monitoring
from podwright.agents import SimulatedMachine, figures
from podwright.cli.podwright import main
from podwright.fabric import preset
from podwright.guests.slurm.hooks._service_metrics import figures as slurm_figures
from podwright.http import MetricsFront
from podwright.http._metrics_front import text
from podwright.server._metrics import pod_name

DOCS = Path(__file__).parents[2] / "docs" / "admin" / "monitoring.md"


def test_the_board_is_what_its_generator_writes() -> None:
    assert BOARD.read_text() == board(), "python -m tools.generate_board"


def test_every_alert_stands_in_the_guide_with_what_to_do() -> None:
    rules = monitoring.read("podwright-rules.yml")
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) == len(set(alerts)) == rules.count("action:") == rules.count("summary:")
    assert re.findall(r"^\| (Podwright\w+) \|", DOCS.read_text(), re.MULTILINE) == alerts


@pytest.mark.parametrize("what", ["scrape", "rules", "dashboards"])
def test_each_can_be_printed(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", what]) == 0
    assert capsys.readouterr().out in {
        monitoring.read(name) for name in monitoring.MONITORING_FILE_NAMES
    }


def test_what_is_there_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "podwright-rules.yml"
    mine.write_text("mine")
    assert main(["metrics", "write", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == [mine.name]
    assert main(["metrics", "write", str(tmp_path / "new")]) == 0
    assert {one.name for one in (tmp_path / "new").iterdir()} == set(
        monitoring.MONITORING_FILE_NAMES
    )
    json.loads((tmp_path / "new" / "podwright-board.json").read_text())


async def test_an_agent_says_what_it_has_and_that_it_is_ill() -> None:
    cluster = preset("pod4")
    machine = SimulatedMachine(cluster.domains[0].machines[0], cluster.family)
    await machine.configure("p1", 1, [0, 1])
    calls: Counter[tuple[str, str]] = Counter({("Reset", "OK"): 3})
    said = text(await figures(machine, "ag1", calls)).decode()
    assert 'podwright_agent_healthy{machine="ag1"} 1.0' in said
    assert 'podwright_agent_devices_configured{machine="ag1"} 2.0' in said
    assert 'podwright_agent_calls_total{code="OK",machine="ag1",method="Reset"} 3.0' in said
    machine.set_down(True)
    said = text(await figures(machine, "ag1", calls)).decode()
    assert 'podwright_agent_healthy{machine="ag1"} 0.0' in said


def test_the_service_says_what_its_state_says() -> None:
    state = {
        "problem": "",
        "figures": {"begun": 4, "waited_s": 1.5, "bare": 1},
        "pods": {
            "pod64": {
                "devices": 64,
                "free_together": {"1": 32, "32": 32},
                "emptied_for_a_large_job": 0,
                "held": {"7": 16, "8": 16},
            }
        },
    }
    said = text(slurm_figures("native", state)).decode()
    for line in (
        'podwright_slurm_mode{mode="native"} 1.0',
        "podwright_slurm_counts_current 1.0",
        "podwright_slurm_jobs_begun_total 4.0",
        "podwright_slurm_waited_seconds_total 1.5",
        'podwright_slurm_devices_held{type="pod64"} 32.0',
        'podwright_slurm_devices_free_in_blocks{size="32",type="pod64"} 32.0',
    ):
        assert line in said.splitlines(), line
    stale = text(slurm_figures("native", state | {"problem": "slurmctld is away"})).decode()
    assert "podwright_slurm_counts_current 0.0" in stale


def test_the_board_asks_for_the_chosen_pods_in_each_query() -> None:
    drawn = json.loads(board())
    chosen = next(each for each in drawn["templating"]["list"] if each["name"] == "pod")
    assert (chosen["includeAll"], chosen["multi"], chosen["allValue"]) == (True, True, ".*")
    for panel in drawn["panels"]:
        for target in panel.get("targets", ()):
            metrics = re.findall(r"\b(?:podwright|process)_\w+", target["expr"])
            narrowed = re.findall(r'\b(?:podwright|process)_\w+{[^}]*pod=~"\$pod"}', target["expr"])
            assert len(metrics) == len(narrowed) > 0, target["expr"]


@pytest.mark.parametrize(
    ("storage", "name"),
    [
        (Path("/var/lib/podwright/vipu-server.db"), "mgmt1"),
        ("/srv/store.db", "mgmt1"),
        ("postgresql://podwright@db1/pods", "db1/pods"),
        ("postgresql://podwright:s@cret@db1:5433/pods?sslmode=require", "db1:5433/pods"),
        ("postgresql:///pods", "mgmt1/pods"),
        ("postgresql://db1", "db1"),
    ],
)
def test_a_pod_without_a_name_has_that_of_its_store(storage: Path | str, name: str) -> None:
    assert pod_name(storage, "mgmt1") == name


async def test_figures_are_gathered_once_for_many_scrapes() -> None:
    asked, now = [], [0.0]

    async def gather() -> list[object]:
        asked.append(1)
        return []

    front = MetricsFront(gather, clock=lambda: now[0])  # type: ignore[arg-type]
    for _ in range(5):
        await front._now()
    assert len(asked) == 1
    now[0] = 10.0
    await front._now()
    assert len(asked) == 2
