"""Writes the Grafana board, by Grafana's own types. Run it after a change here; a test compares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Series
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableOption, VariableRefresh

BOARD = Path(__file__).parents[1] / "src/podwright/monitoring/podwright-board.json"
#: What each query is narrowed by: the pods that are chosen above the board. All of them is `.*`,
#: which also takes in what has no label.
POD = 'pod=~"$pod"'
_METRIC = re.compile(r"\b((?:podwright|process)_\w+)(?:\{([^}]*)\})?")
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")


class Shown(NamedTuple):
    """A panel. queries: what is asked, and what each line is called."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stat: bool = False


_ALL = "sum by (pod) (podwright_devices)"
#: A pod in which nothing is in use has no device in that state.
_USE = f'(sum by (pod) (podwright_devices{{state="IN_USE"}}) or 0 * {_ALL}) / {_ALL}'


def _quantile(part: float) -> str:
    times = "sum by (pod, le) (rate(podwright_call_duration_seconds_bucket[5m]))"
    return f"histogram_quantile({part}, {times})"


ROWS: dict[str, tuple[Shown, ...]] = {
    "The pod": (
        Shown(
            "Devices free",
            (('sum(podwright_devices{state="FREE"}) or vector(0)', "free"),),
            stat=True,
        ),
        Shown(
            "Devices in use",
            (('sum(podwright_devices{state="IN_USE"}) or vector(0)', "in use"),),
            stat=True,
        ),
        Shown("Requests that wait", (("sum(podwright_waiters)", "waiting"),), stat=True),
        Shown(
            "Machines out of service",
            (("sum(podwright_machine_up == bool 0) or vector(0)", "out"),),
            stat=True,
        ),
        Shown("Devices by state", (("sum by (state) (podwright_devices)", "{{state}}"),)),
        Shown(
            "Use",
            ((_USE, "{{pod}}"),),
            "percentunit",
        ),
        Shown("Partitions", (("sum by (state) (podwright_partitions)", "{{state}}"),)),
        Shown("Leases", (("sum by (state) (podwright_leases)", "{{state}}"),)),
    ),
    "The server": (
        Shown(
            "Calls",
            (("sum by (method) (rate(podwright_call_duration_seconds_count[5m]))", "{{method}}"),),
            "reqps",
        ),
        Shown(
            "Time of a call",
            (
                (_quantile(0.5), "{{pod}}: half within"),
                (_quantile(0.99), "{{pod}}: 99 of 100 within"),
            ),
            "s",
        ),
        Shown(
            "Refusals and failures",
            (("sum by (code) (rate(podwright_errors_total[5m]))", "{{code}}"),),
            "reqps",
        ),
        Shown(
            "Memory",
            (
                (
                    'process_resident_memory_bytes{job=~"podwright-.*"}',
                    "{{pod}} {{job}} {{instance}}",
                ),
            ),
            "bytes",
        ),
        Shown("Connections", (("podwright_connections", "{{pod}} {{door}}"),)),
        Shown("Active since start", (("podwright_epoch", "{{pod}} {{instance}}"),)),
    ),
    "Agents": (
        Shown(
            "Devices in partitions",
            (("podwright_agent_devices_configured", "{{pod}} {{machine}}"),),
        ),
        Shown(
            "Calls of agents",
            (
                (
                    "sum by (method, code) (rate(podwright_agent_calls_total[5m]))",
                    "{{method}} {{code}}",
                ),
            ),
            "reqps",
        ),
    ),
    "Slurm": (
        Shown("Devices that jobs hold", (("podwright_slurm_devices_held", "{{pod}} {{type}}"),)),
        Shown("Jobs that hold devices", (("podwright_slurm_jobs_holding", "{{pod}} {{type}}"),)),
        Shown(
            "Free devices in whole blocks",
            (("podwright_slurm_devices_free_in_blocks", "{{pod}} {{type}}: blocks of {{size}}"),),
        ),
        Shown(
            "Jobs",
            (
                ("rate(podwright_slurm_jobs_begun_total[5m])", "{{pod}} began"),
                ("rate(podwright_slurm_jobs_ended_total[5m])", "{{pod}} ended"),
                ("rate(podwright_slurm_jobs_refused_total[5m])", "{{pod}} refused"),
                (
                    "rate(podwright_slurm_jobs_unproven_total[5m])",
                    "{{pod}} steps ended without devices",
                ),
            ),
            "reqps",
        ),
        Shown(
            "Waiting in prologs",
            (("rate(podwright_slurm_waited_seconds_total[5m])", "{{pod}}: seconds a second"),),
        ),
    ),
}


def board() -> str:
    """The board, as Grafana imports it."""
    made = (
        Dashboard("Podwright")
        .uid("podwright")
        .tags(["podwright", "accelerators"])
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            QueryVariable("pod")
            .label("Pod")
            .datasource(SOURCE)
            .query("label_values(podwright_active, pod)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(VariableOption(selected=True, text="All", value="$__all"))
        )
    )
    for title, panels in ROWS.items():
        made = made.with_row(Row(title))
        for shown in panels:
            made = made.with_panel(_panel(shown))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def of_pods(expression: str) -> str:
    """The expression with each of its metrics narrowed to the chosen pods."""

    def narrowed(found: re.Match[str]) -> str:
        name, labels = found[1], found[2] or ""
        if POD in labels:
            return found[0]
        return f"{name}{{{labels},{POD}}}" if labels else f"{name}{{{POD}}}"

    return _METRIC.sub(narrowed, expression)


def _panel(shown: Shown) -> Stat | Series:
    panel = Stat() if shown.stat else Series()
    panel.title(shown.title).unit(shown.unit).datasource(SOURCE)
    panel.span(6 if shown.stat else 12).height(4 if shown.stat else 8).min(0)
    if isinstance(panel, Series):
        legend = VizLegendOptions().show_legend(True)
        legend.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        panel.legend(legend)
    for expression, name in shown.queries:
        panel.with_target(
            Dataquery().expr(of_pods(expression)).legend_format(name).datasource(SOURCE)
        )
    return panel


if __name__ == "__main__":
    BOARD.write_text(board(), encoding="utf-8")
