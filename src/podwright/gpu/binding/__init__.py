"""Checks which GPUs the tasks of a real job get, and whether those are the GPUs that were
requested."""

from podwright.gpu.binding._binding_job import job_options, probe
from podwright.gpu.binding._format_verdicts import as_rows, as_text
from podwright.gpu.binding._verdict import ProbedTask, TaskSeen, Verdict, judge, read_tasks

__all__ = [
    "ProbedTask",
    "TaskSeen",
    "Verdict",
    "as_rows",
    "as_text",
    "job_options",
    "judge",
    "probe",
    "read_tasks",
]
