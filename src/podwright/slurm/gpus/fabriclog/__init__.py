"""What NCCL_DEBUG=INFO says of the fabric: who reached whom over what, and what to set."""

from podwright.slurm.gpus.fabriclog._advice import Finding, judge, not_known
from podwright.slurm.gpus.fabriclog._read_log import Pair, Report, read_log

__all__ = ["Finding", "Pair", "Report", "judge", "not_known", "read_log"]
