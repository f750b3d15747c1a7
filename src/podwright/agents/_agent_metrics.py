"""Prometheus figures of an agent: its devices, those that are configured, and its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from podwright.agents._driver import Driver
from podwright.errors import PodwrightError
from podwright.http import Figure


async def figures(
    driver: Driver, machine: str, calls: Counter[tuple[str, str]]
) -> Iterable[Figure]:
    """Return the current figures.

    calls: the number of calls by method and code. The code of a successful call is `OK`.
    """
    labels = {"machine": machine}
    words = "Calls that were answered, by how they ended."
    call_figures = [
        Figure("agent_calls", words, count, {**labels, "method": method, "code": code}, total=True)
        for (method, code), count in sorted(calls.items())
    ]
    try:
        report = await driver.describe()
    except PodwrightError:
        return [Figure("agent_healthy", "1: its devices answer.", 0, labels), *call_figures]
    configured = len(report.configured)
    return [
        Figure("agent_healthy", "1: its devices answer.", 1, labels),
        Figure("agent_devices", "Devices of the machine.", len(report.devices), labels),
        Figure("agent_devices_configured", "Devices that are in a partition.", configured, labels),
        *call_figures,
    ]
