"""Writes the Grafana board, by Grafana's own types. Run it after a change here; a test compares."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Series
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef

BOARD = Path(__file__).parents[1] / "src/podwright/monitoring/podwright-board.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")


class Shown(NamedTuple):
    """A panel. queries: what is asked, and what each line is called."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stat: bool = False


_USE = '(sum(podwright_devices{state="IN_USE"}) or vector(0)) / sum(podwright_devices)'


def _quantile(part: float) -> str:
    times = "sum by (le) (rate(podwright_call_duration_seconds_bucket[5m]))"
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
            ((_USE, "in use"),),
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
                (_quantile(0.5), "half within"),
                (_quantile(0.99), "99 of 100 within"),
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
            (('process_resident_memory_bytes{job=~"podwright-.*"}', "{{job}} {{instance}}"),),
            "bytes",
        ),
        Shown("Connections", (("podwright_connections", "{{door}}"),)),
        Shown("Active since start", (("podwright_epoch", "epoch"),)),
    ),
    "Agents": (
        Shown("Devices in partitions", (("podwright_agent_devices_configured", "{{machine}}"),)),
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
        Shown("Devices that jobs hold", (("podwright_slurm_devices_held", "{{pod}}"),)),
        Shown("Jobs that hold devices", (("podwright_slurm_jobs_holding", "{{pod}}"),)),
        Shown(
            "Free devices in whole blocks",
            (("podwright_slurm_devices_free_in_blocks", "blocks of {{size}}"),),
        ),
        Shown(
            "Jobs",
            (
                ("rate(podwright_slurm_jobs_begun_total[5m])", "began"),
                ("rate(podwright_slurm_jobs_ended_total[5m])", "ended"),
                ("rate(podwright_slurm_jobs_refused_total[5m])", "refused"),
                ("rate(podwright_slurm_jobs_unproven_total[5m])", "steps ended without devices"),
            ),
            "reqps",
        ),
        Shown(
            "Waiting in prologs",
            (("rate(podwright_slurm_waited_seconds_total[5m])", "seconds a second"),),
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
    )
    for title, panels in ROWS.items():
        made = made.with_row(Row(title))
        for shown in panels:
            made = made.with_panel(_panel(shown))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _panel(shown: Shown) -> Stat | Series:
    panel = Stat() if shown.stat else Series()
    panel.title(shown.title).unit(shown.unit).datasource(SOURCE)
    panel.span(6 if shown.stat else 12).height(4 if shown.stat else 8).min(0)
    if isinstance(panel, Series):
        legend = VizLegendOptions().show_legend(True)
        legend.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        panel.legend(legend)
    for expression, name in shown.queries:
        panel.with_target(Dataquery().expr(expression).legend_format(name).datasource(SOURCE))
    return panel


if __name__ == "__main__":
    BOARD.write_text(board(), encoding="utf-8")
