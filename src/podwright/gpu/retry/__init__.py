"""Runs a job's command, and starts the job again on other nodes where a node was at fault."""

from podwright.gpu.retry._history import JobAttempt, history_path, read_history, table_of_attempts
from podwright.gpu.retry._retry_job import retry

__all__ = ["JobAttempt", "history_path", "read_history", "retry", "table_of_attempts"]
