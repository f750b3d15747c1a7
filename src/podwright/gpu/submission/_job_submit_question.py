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
_MAX_SHOWN_FINDINGS = 5
_MAX_FINDING_CHARS = 400  # letters of one of them


def answer(question: str, site: CachedSite) -> str:
    """Return the answer to a question."""
    field_text, _, script_text = question.partition("\n\n")
    fields = dict(line.split("=", 1) for line in field_text.splitlines() if "=" in line)
    if not script_text.strip():
        return "clean\n"  # no script of a user
    script = read_script(script_text)
    if overridden(script.request, fields):
        script.open.add("nodes")  # no count of the script is the job's
    findings = lint(script, site)
    if not findings:
        return "clean\n"
    answer_lines = [
        f"podwright lint: line {finding.line}: "
        f"{' '.join(finding.reason.split())[:_MAX_FINDING_CHARS]} [{finding.rule}]"
        for finding in findings[:_MAX_SHOWN_FINDINGS]
    ]
    hidden_count = len(findings) - _MAX_SHOWN_FINDINGS
    if hidden_count > 0:
        answer_lines.append(
            f"podwright lint: and {hidden_count} more: podwright slurm lint SCRIPT shows them"
        )
    rule_ids = ", ".join(dict.fromkeys(finding.rule for finding in findings))
    answer_lines.append(
        f"podwright lint: where it is wrong, write into the script: # podwright: ignore {rule_ids}"
    )
    return "mistake\n" + "\n".join(answer_lines) + "\n"


def overridden(request: SlurmRequest, fields: Mapping[str, str]) -> bool:
    """Return whether options or the environment gave the job other counts than its script has."""
    counts = {
        name: int(field_value) for name, field_value in fields.items() if is_number(field_value)
    }
    node_count, task_count = counts.get("min_nodes", 1), counts.get("num_tasks", 1)
    tasks_per_node = counts.get("ntasks_per_node")
    if request.min_nodes is not None and node_count != request.min_nodes:
        return True
    if request.min_nodes is None and node_count > 1 and not request.tasks_per_node:
        return True
    if tasks_per_node is not None and tasks_per_node != (request.tasks_per_node or 0):
        return True
    if request.tasks is not None and "num_tasks" in counts and task_count != request.tasks:
        return True
    has_counts = (
        request.tasks or request.min_nodes or request.tasks_per_node or request.tasks_per_gpu
    )
    if not has_counts and task_count > 1:
        return True
    return _gpus_differ(request, fields)


def _gpus_differ(request: SlurmRequest, fields: Mapping[str, str]) -> bool:
    requested_gpus = {
        "tres_per_job": request.per_job,
        "tres_per_node": request.per_node,
        "tres_per_socket": request.per_socket,
        "tres_per_task": request.per_task,
    }
    try:
        return any(
            _total_gpus(fields.get(name, "")) != (gpu_request.count if gpu_request else 0)
            for name, gpu_request in requested_gpus.items()
        )
    except InvalidRequest:
        return True


def _total_gpus(gres_text: str) -> int:
    gpus: list[Gpus] = parse_gres(gres_text)
    return sum(entry.count for entry in gpus)
