"""Checks which GPUs the tasks of a real job get, and whether those are the GPUs that were
requested."""

from ._binding_job import job_options as job_options
from ._binding_job import probe as probe
from ._format_verdicts import as_rows as as_rows
from ._format_verdicts import as_text as as_text
from ._verdict import ProbedTask as ProbedTask
from ._verdict import TaskSeen as TaskSeen
from ._verdict import Verdict as Verdict
from ._verdict import judge as judge
from ._verdict import read_tasks as read_tasks
