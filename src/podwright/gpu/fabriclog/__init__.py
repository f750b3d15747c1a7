"""Reads NCCL_DEBUG=INFO logs: which transport connected each pair of ranks, and which settings to
change."""

from podwright.gpu.fabriclog._fabric_advice import FabricFinding, judge, judged, not_known
from podwright.gpu.fabriclog._format_fabric_report import as_json, as_text
from podwright.gpu.fabriclog._read_nccl_log import FabricReport, Pair, read_log

__all__ = [
    "FabricFinding",
    "FabricReport",
    "Pair",
    "as_json",
    "as_text",
    "judge",
    "judged",
    "not_known",
    "read_log",
]
