"""What NCCL_DEBUG=INFO says of the fabric: who reached whom over what, and what to set."""

from podwright.slurm.gpus.fabriclog._fabric_advice import FabricFinding, judge, not_known
from podwright.slurm.gpus.fabriclog._read_log import FabricReport, Pair, read_log

__all__ = ["FabricFinding", "FabricReport", "Pair", "judge", "not_known", "read_log"]
