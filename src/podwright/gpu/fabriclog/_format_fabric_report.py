"""What a log of NCCL says, as text for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from podwright.gpu.fabriclog._fabric_advice import FabricFinding
from podwright.gpu.fabriclog._read_nccl_log import FabricReport
from podwright.ground.judgement import Judgement, Says
from podwright.ground.plural import counted
from podwright.ground.tables import table

_VERDICTS = {Says.YES: "good", Says.NO: "mend", Says.NOT_KNOWN: "not known"}
_SHOWN_WARNINGS = 5


def as_text(
    log_report: FabricReport, findings: Sequence[FabricFinding], unknown_facts: Sequence[str]
) -> str:
    """Return what was used between which ranks, and what to set. unknown_facts: why nothing is
    known.
    """
    header = (
        f"{log_report.library} {log_report.version or '(version not in the log)'}, "
        f"{counted(log_report.ranks, 'rank')}"
    )
    host_count = len(set(log_report.hosts.values()))
    hosts_text = f"{host_count} host{'s' * (host_count != 1)}"
    all_ranks_logged = len(log_report.hosts) >= log_report.ranks
    lines = [
        f"{header} on {hosts_text}"
        if host_count and all_ranks_logged
        else f"{header}; {hosts_text} wrote"
        if host_count
        else header
    ]
    if log_report.adapters:
        lines.append(f"Adapters: {', '.join(log_report.adapters)}")
    if log_report.several_groups:
        lines.append("Several communicators: each counts its ranks from 0")
    pair_rows = [
        (
            f"{pair.a} - {pair.b}",
            "other hosts" if log_report.between_hosts(pair) else "same host",
            pair.transport,
            "yes" if pair.gpudirect else ("no" if pair.transport.startswith("NET/") else "-"),
            pair.channels,
        )
        for pair in log_report.pairs
    ]
    if pair_rows:
        lines.append(table(("Ranks", "On", "Transport", "GPUDirect", "Channels"), pair_rows))
    failure_lines = _finding_lines(findings[:1]) if log_report.failure else []
    lines[:0] = failure_lines
    lines += _finding_lines(findings[1:] if failure_lines else findings)
    shown_line = log_report.failure.line if log_report.failure else ""
    warnings = [warning for warning in log_report.warnings if warning != shown_line]
    lines += [f"{log_report.library} warned: {warning}" for warning in warnings[:_SHOWN_WARNINGS]]
    if len(warnings) > _SHOWN_WARNINGS:
        lines.append(f"… {len(warnings) - _SHOWN_WARNINGS} more warnings; --json has them all")
    for fact in unknown_facts:
        lines.append(f"Not known: {fact}.")
    if not findings and not unknown_facts:
        lines.append("Nothing to set: every pair uses the fabric as it should.")
    return "\n".join(lines)


def _finding_lines(findings: Sequence[FabricFinding]) -> list[str]:
    lines = []
    for finding in findings:
        text = f" ({finding.pairs} pair{'s' * (finding.pairs != 1)})" * bool(finding.pairs)
        lines.append(f"{finding.id}: {finding.problem}{text}.")
        lines.append(f"  What would help: {finding.remedy}.")
    return lines


def as_json(
    log_report: FabricReport,
    findings: Sequence[FabricFinding],
    unknown_facts: Sequence[str],
    judgement: Judgement,
) -> dict[str, object]:
    """Return the report with its findings, as data for JSON."""
    pair_objects = [
        asdict(pair) | {"between_hosts": log_report.between_hosts(pair)}
        for pair in log_report.pairs
    ]
    failure = log_report.failure
    fields = {name: value for name, value in asdict(log_report).items() if name != "worlds"}
    return fields | {
        "verdict": _VERDICTS[judgement.says],
        "judgement": judgement.as_json(),
        "failure": failure
        and {
            "line": failure.line,
            "host": failure.host,
            "cause": failure.cause.id if failure.cause else None,
        },
        "not_known": unknown_facts,
        "findings": [asdict(finding) for finding in findings],
        "one_name": sorted(log_report.one_name),
        "names": sorted(log_report.names),
        "sends": {
            host: {process: sorted(numbers) for process, numbers in adapters_by_process.items()}
            for host, adapters_by_process in log_report.sends.items()
        },
        "pairs": pair_objects,
    }
