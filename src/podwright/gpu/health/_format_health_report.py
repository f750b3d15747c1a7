"""A report as text for people and as gauges for Prometheus' node_exporter (textfile collector)."""

from __future__ import annotations

from podwright.gpu.health._findings import LEVELS, NodeReport
from podwright.gpu.health._run_health_checks import all_checks


def text(node_report: NodeReport) -> str:
    """The report in words: the outcome first, then what each finding means and what to do."""
    findings_by_level = {
        finding_level: [
            finding_of_level
            for finding_of_level in node_report.findings
            if finding_of_level.level == finding_level
        ]
        for finding_level in LEVELS
    }
    fail_count, warn_count = len(findings_by_level["fail"]), len(findings_by_level["warn"])
    summary = f"({len(node_report.checks)} checks, {node_report.seconds:.2f} s)"
    if fail_count:
        headline = (
            f"{node_report.host} is not fit for jobs: {fail_count} of its checks' findings say so "
            f"{summary}."
        )
    elif warn_count:
        things_to_look_at = (
            "1 thing to look at" if warn_count == 1 else f"{warn_count} things to look at"
        )
        headline = f"{node_report.host} is fit for jobs; {things_to_look_at} {summary}."
    else:
        headline = f"{node_report.host} is fit for jobs {summary}."
    text_lines = [headline]
    for finding in node_report.findings:
        text_lines += [
            "",
            f"{finding.level.upper()}  {finding}   [{finding.check}]",
            f"  {finding.means}",
            f"  To do: {finding.do}",
        ]
    return "\n".join(text_lines)


def prometheus(node_report: NodeReport, wall_time: float) -> str:
    """The text of a .prom file. wall_time: seconds since 1970."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    metric_registry = CollectorRegistry()
    label_names = ("check", "part", "level", "problem")
    fit_gauge = Gauge(
        "podwright_node_fit", "1: jobs may run on this node.", registry=metric_registry
    )
    fit_gauge.set(node_report.fit)
    finding_gauge = Gauge(
        "podwright_node_finding",
        "What a health check found.",
        label_names,
        registry=metric_registry,
    )
    for health_finding in node_report.findings:
        finding_gauge.labels(
            health_finding.check, health_finding.part, health_finding.level, health_finding.problem
        ).set(1)
    findings_per_check = Gauge(
        "podwright_node_check_findings",
        "How many things a check found that are not a job's own.",
        ("check",),
        registry=metric_registry,
    )
    for check_name in node_report.checks:
        check_findings = [
            other_finding
            for other_finding in node_report.findings
            if other_finding.check == check_name and other_finding.level != "note"
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


def checks() -> list[tuple[str, str, str, str]]:
    """The table: name, level, bound, what it asks for."""
    return [
        (
            check_name,
            check.level,
            f"{check.limit:g} {check.unit}" if check.unit else "",
            check.about,
        )
        for check_name, check in all_checks().items()
    ]
