"""Reads NCCL_DEBUG=INFO logs: which transport connected each pair of ranks, and which settings to
change."""

from ._fabric_advice import FabricFinding as FabricFinding
from ._fabric_advice import judge as judge
from ._fabric_advice import judged as judged
from ._fabric_advice import not_known as not_known
from ._format_fabric_report import as_json as as_json
from ._format_fabric_report import as_text as as_text
from ._read_nccl_log import FabricReport as FabricReport
from ._read_nccl_log import Pair as Pair
from ._read_nccl_log import read_log as read_log
