"""A report as text for people and as gauges for Prometheus' node_exporter (textfile collector)."""

from __future__ import annotations

import math

from podwright.gpu.health._findings import NodeReport
from podwright.gpu.health._run_health_checks import all_checks
from podwright.ground.judgement import Says

_HEADLINES = {
    Says.YES: "is fit for jobs",
    Says.NO: "is not fit for jobs",
    Says.NOT_KNOWN: "may or may not be fit for jobs",
}
_LEVELS = {Says.YES: "LOOK", Says.NO: "SICK", Says.NOT_KNOWN: "NOT KNOWN"}


def text(node_report: NodeReport) -> str:
    """The report in words: the outcome first, then the evidence of each finding and what to do."""
    checks = f"({len(node_report.checks)} checks, {node_report.seconds:.2f} s)"
    lines = [f"{node_report.host} {_HEADLINES[node_report.judgement.says]} {checks}."]
    for finding in node_report.findings:
        source = f" Source: {finding.source}." if finding.source else ""
        lines += [
            "",
            f"{_LEVELS[finding.says]}  {finding}   [{finding.check}]",
            f"  {finding.because[0].upper()}{finding.because[1:]}.{source}",
            f"  To do: {finding.do}",
        ]
    if node_report.left_out:
        lines += ["", f"Not looked at: {'; '.join(node_report.left_out)}."]
    return "\n".join(lines)


def prometheus(node_report: NodeReport, wall_time: float) -> str:
    """The text of a .prom file. wall_time: seconds since 1970."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    metric_registry = CollectorRegistry()
    label_names = ("check", "part", "says", "problem")
    fit_gauge = Gauge(
        "podwright_node_fit",
        "1: jobs may run on this node. 0: they may not. NaN: not known.",
        registry=metric_registry,
    )
    fit_gauge.set(math.nan if node_report.fit is None else node_report.fit)
    finding_gauge = Gauge(
        "podwright_node_finding",
        "What a health check found.",
        label_names,
        registry=metric_registry,
    )
    for health_finding in node_report.findings:
        finding_gauge.labels(
            health_finding.check, health_finding.part, health_finding.says, health_finding.problem
        ).set(1)
    findings_per_check = Gauge(
        "podwright_node_check_findings",
        "How many things a check found that keep jobs away.",
        ("check",),
        registry=metric_registry,
    )
    for check_name in node_report.checks:
        check_findings = [
            other_finding
            for other_finding in node_report.findings
            if other_finding.check == check_name and other_finding.says is Says.NO
        ]
        findings_per_check.labels(check_name).set(len(check_findings))
    duration_gauge = Gauge(
        "podwright_node_check_seconds", "What the checks took.", registry=metric_registry
    )
    duration_gauge.set(node_report.seconds)
    checked_at_gauge = Gauge(
        "podwright_node_check_time_seconds", "When they ran.", registry=metric_registry
    )
    checked_at_gauge.set(wall_time)
    return generate_latest(metric_registry).decode()


def checks() -> list[tuple[str, str, str]]:
    """The table: name, bound, what it asks for."""
    return [
        (name, f"{check.limit:g} {check.unit}" if check.unit else "", check.about)
        for name, check in all_checks().items()
    ]
