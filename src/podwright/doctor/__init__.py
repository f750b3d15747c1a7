"""What works here and what does not: hosts, the server with its store and agents, Slurm, GPUs."""

from podwright.doctor._collect_findings import Subject, diagnose, findings_text

__all__ = ["Subject", "diagnose", "findings_text"]
