"""Which GPUs the tasks of a real job get, and whether that is what was meant."""

from podwright.slurm.gpus.binding._binding_job import job_options, probe
from podwright.slurm.gpus.binding._verdict import Task, TaskSeen, Verdict, judge, read_tasks

__all__ = ["Task", "TaskSeen", "Verdict", "job_options", "judge", "probe", "read_tasks"]
