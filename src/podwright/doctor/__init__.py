"""What works here and what does not: hosts, the server with its store and agents, Slurm, GPUs."""

from ._collect_findings import Subject as Subject
from ._collect_findings import diagnose as diagnose
from ._collect_findings import findings_text as findings_text
