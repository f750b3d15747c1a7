"""Prometheus figures of an agent: its devices, those that are configured, and its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from podwright.agents._driver_interface import Driver
from podwright.errors import PodwrightError
from podwright.http import Figure


async def figures(
    driver: Driver, machine: str, call_counts: Counter[tuple[str, str]]
) -> Iterable[Figure]:
    """Return the current figures.

    call_counts: the number of calls by method and code. The code of a successful call is `OK`.
    """
    labels = {"machine": machine}
    help_text = "Calls that were answered, by how they ended."
    call_figures = [
        Figure(
            "agent_calls",
            help_text,
            count,
            {**labels, "method": method, "code": code},
            total=True,
        )
        for (method, code), count in sorted(call_counts.items())
    ]
    try:
        machine_report = await driver.describe()
    except PodwrightError:
        return [Figure("agent_healthy", "1: its devices answer.", 0, labels), *call_figures]
    configured_count = len(machine_report.configured)
    return [
        Figure("agent_healthy", "1: its devices answer.", 1, labels),
        Figure("agent_devices", "Devices of the machine.", len(machine_report.devices), labels),
        Figure(
            "agent_devices_configured", "Devices that are in a partition.", configured_count, labels
        ),
        *call_figures,
    ]
