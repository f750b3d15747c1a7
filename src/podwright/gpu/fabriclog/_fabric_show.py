"""What a log of NCCL says, as text for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from podwright.gpu.fabriclog._fabric_advice import FabricFinding
from podwright.gpu.fabriclog._read_log import FabricReport
from podwright.tables import table


def as_text(report: FabricReport, findings: Sequence[FabricFinding], unknown: Sequence[str]) -> str:
    """Return what was used between which ranks, and what to set. unknown: why nothing is known."""
    head = f"{report.library} {report.version or '(version not in the log)'}, {report.ranks} ranks"
    hosts = len(set(report.hosts.values()))
    where = f"{hosts} host{'s' * (hosts != 1)}"
    complete = len(report.hosts) >= report.ranks
    lines = [
        f"{head} on {where}" if hosts and complete else f"{head}; {where} wrote" if hosts else head
    ]
    if report.adapters:
        lines.append(f"Adapters: {', '.join(report.adapters)}")
    if report.several_groups:
        lines.append("Several communicators: each counts its ranks from 0")
    rows = [
        (
            f"{p.a} - {p.b}",
            "other hosts" if report.between_hosts(p) else "same host",
            p.transport,
            "yes" if p.gpudirect else ("no" if p.transport.startswith("NET/") else "-"),
            p.channels,
        )
        for p in report.pairs
    ]
    if rows:
        lines.append(table(("Ranks", "On", "Transport", "GPUDirect", "Channels"), rows))
    for finding in findings:
        pairs = f"{finding.pairs} pair{'s' * (finding.pairs != 1)}"
        lines.append(f"{finding.id}: {finding.problem} ({pairs}).")
        lines.append(f"  Set: {finding.remedy}.")
    for reason in unknown:
        lines.append(f"Not known: {reason}.")
    if not findings and not unknown:
        lines.append("Nothing to set: every pair uses the fabric as it should.")
    return "\n".join(lines)


def as_json(
    report: FabricReport, findings: Sequence[FabricFinding], unknown: Sequence[str], verdict: str
) -> dict[str, object]:
    """Return the report with its findings, as data for JSON. verdict: what follows from it."""
    pairs = [asdict(pair) | {"between_hosts": report.between_hosts(pair)} for pair in report.pairs]
    return asdict(report) | {
        "verdict": verdict,
        "not_known": unknown,
        "findings": [asdict(finding) for finding in findings],
        "one_name": sorted(report.one_name),
        "names": sorted(report.names),
        "sends": {h: {r: sorted(d) for r, d in s.items()} for h, s in report.sends.items()},
        "pairs": pairs,
    }
