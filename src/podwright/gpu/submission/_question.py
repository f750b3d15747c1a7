"""The question that job_submit asks, and the answer that it gets. Pure.

A question is lines of `name=value` (counts of the job as submitted), an empty line, and the script.
An answer is `clean`, or `mistake` and the lines for the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from podwright.errors import InvalidRequest
from podwright.gpu.lint import CachedSite, lint, read_script
from podwright.gpu.requests import Gpus, SlurmRequest, is_number, parse_gres

#: The largest number of findings in an answer.
_MOST_SHOWN = 5
_LONGEST = 400  # letters of one of them


def answer(question: str, site: CachedSite) -> str:
    """Return the answer to a question."""
    head, _, text = question.partition("\n\n")
    fields = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    if not text.strip():
        return "clean\n"  # no script of a user
    script = read_script(text)
    if overridden(script.request, fields):
        script.open.add("nodes")  # no count of the script is the job's
    findings = lint(script, site)
    if not findings:
        return "clean\n"
    lines = [
        f"podwright lint: line {finding.line}: "
        f"{' '.join(finding.reason.split())[:_LONGEST]} [{finding.rule}]"
        for finding in findings[:_MOST_SHOWN]
    ]
    more = len(findings) - _MOST_SHOWN
    if more > 0:
        lines.append(f"podwright lint: and {more} more: podwright slurm lint SCRIPT shows them")
    rules = ", ".join(dict.fromkeys(finding.rule for finding in findings))
    lines.append(
        f"podwright lint: where it is wrong, write into the script: # podwright: ignore {rules}"
    )
    return "mistake\n" + "\n".join(lines) + "\n"


def overridden(request: SlurmRequest, fields: Mapping[str, str]) -> bool:
    """Return whether options or the environment gave the job other counts than its script has."""
    counts = {name: int(value) for name, value in fields.items() if is_number(value)}
    nodes, tasks = counts.get("min_nodes", 1), counts.get("num_tasks", 1)
    each = counts.get("ntasks_per_node")
    if request.min_nodes is not None and nodes != request.min_nodes:
        return True
    if request.min_nodes is None and nodes > 1 and not request.tasks_per_node:
        return True
    if each is not None and each != (request.tasks_per_node or 0):
        return True
    if request.tasks is not None and "num_tasks" in counts and tasks != request.tasks:
        return True
    sized = request.tasks or request.min_nodes or request.tasks_per_node or request.tasks_per_gpu
    if not sized and tasks > 1:
        return True
    return _gpus_differ(request, fields)


def _gpus_differ(request: SlurmRequest, fields: Mapping[str, str]) -> bool:
    ours = {
        "tres_per_job": request.per_job,
        "tres_per_node": request.per_node,
        "tres_per_socket": request.per_socket,
        "tres_per_task": request.per_task,
    }
    try:
        return any(
            _total(fields.get(name, "")) != (gpus.count if gpus else 0)
            for name, gpus in ours.items()
        )
    except InvalidRequest:
        return True


def _total(text: str) -> int:
    gpus: list[Gpus] = parse_gres(text)
    return sum(entry.count for entry in gpus)
