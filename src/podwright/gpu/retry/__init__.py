"""Runs a job's command, and starts the job again on other nodes where a node was at fault."""

from ._history import JobAttempt as JobAttempt
from ._history import history_path as history_path
from ._history import read_history as read_history
from ._history import table_of_attempts as table_of_attempts
from ._retry_job import retry as retry
