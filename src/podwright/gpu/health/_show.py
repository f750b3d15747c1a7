"""A report as text for people and as gauges for Prometheus' node_exporter (textfile collector)."""

from __future__ import annotations

from podwright.gpu.health._findings import LEVELS, NodeReport
from podwright.gpu.health._table import all_checks


def text(report: NodeReport) -> str:
    """The report in words: the outcome first, then what each finding means and what to do."""
    weigh = {level: [f for f in report.findings if f.level == level] for level in LEVELS}
    bad, warned = len(weigh["fail"]), len(weigh["warn"])
    summary = f"({len(report.checks)} checks, {report.seconds:.2f} s)"
    if bad:
        head = f"{report.host} is not fit for jobs: {bad} of its checks' findings say so {summary}."
    elif warned:
        attention = "1 thing to look at" if warned == 1 else f"{warned} things to look at"
        head = f"{report.host} is fit for jobs; {attention} {summary}."
    else:
        head = f"{report.host} is fit for jobs {summary}."
    lines = [head]
    for finding in report.findings:
        lines += [
            "",
            f"{finding.level.upper()}  {finding}   [{finding.check}]",
            f"  {finding.means}",
            f"  To do: {finding.do}",
        ]
    return "\n".join(lines)


def prometheus(report: NodeReport, now: float) -> str:
    """The text of a .prom file. now: seconds since 1970."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    labels = ("check", "part", "level", "problem")
    fit = Gauge("podwright_node_fit", "1: jobs may run on this node.", registry=registry)
    fit.set(report.fit)
    finding_gauge = Gauge(
        "podwright_node_finding", "What a health check found.", labels, registry=registry
    )
    for finding in report.findings:
        finding_gauge.labels(finding.check, finding.part, finding.level, finding.problem).set(1)
    counts = Gauge(
        "podwright_node_check_findings",
        "How many things a check found that are not a job's own.",
        ("check",),
        registry=registry,
    )
    for name in report.checks:
        problems = [f for f in report.findings if f.check == name and f.level != "note"]
        counts.labels(name).set(len(problems))
    duration = Gauge("podwright_node_check_seconds", "What the checks took.", registry=registry)
    duration.set(report.seconds)
    checked_at = Gauge("podwright_node_check_time_seconds", "When they ran.", registry=registry)
    checked_at.set(now)
    return generate_latest(registry).decode()


def checks() -> list[tuple[str, str, str, str]]:
    """The table: name, level, bound, what it asks for."""
    return [
        (name, check.level, f"{check.limit:g} {check.unit}" if check.unit else "", check.about)
        for name, check in all_checks().items()
    ]
