"""Expected rates of GPUs by their makers' data sheets, so that a node without a sibling is judged
too.

Rates are in Gb/s and one direction. They are what programs reach: 80 per cent of the line's rate.
Sources: NVIDIA's data sheets of V100, A100, H100, H200, L40S, L4, A10, T4 and DGX B200 (NVLink 300,
600, 900, 900 and 1,800 GB/s in both directions; PCIe of generation 3, 4 and 5 on 16 lanes: 15.75,
31.5 and 63 GB/s in each), AMD's of MI250X and MI300X (Infinity Fabric links of 50 and 64 GB/s in
each direction, seven of them on a MI300X).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_REACHED_SHARE = 0.8
_PCIE_GBPS = {3: 126.0, 4: 252.0, 5: 504.0}


class _GpuModel(NamedTuple):
    """pattern: of the GPU's name. pcie: generation, 0: another connection to the host. pair: to one
    other GPU. ring: in an all-reduce. For both, 0: by PCIe, whose rate depends on the board.
    """

    pattern: str
    pcie: int
    pair: float = 0.0
    ring: float = 0.0


#: The first entry counts whose pattern matches the name of a GPU.
_GPU_MODELS = (
    _GpuModel(r"H100 PCIe|H100 NVL|H200 NVL", 5),
    _GpuModel(r"GH200|GB200|GB300", 0),
    _GpuModel(r"B200|B300", 5, 7200, 7200),
    _GpuModel(r"H100|H200|H800", 5, 3600, 3600),
    _GpuModel(r"A100[- ]SXM|A800[- ]SXM", 4, 2400, 2400),
    _GpuModel(r"V100-SXM", 3, 0, 1200),  # a pair has one or two of its six links
    _GpuModel(r"A100|A800|L40|L4\b|A10\b|A30|A40|RTX 6000 Ada|RTX A6000", 4),
    _GpuModel(r"V100|T4\b", 3),
    _GpuModel(r"MI300X|MI325X", 5, 512, 3584),
    _GpuModel(r"MI250X?", 4, 400, 0),
)


def expected(gpu_name: str, gpu_count: int) -> dict[str, float]:
    """The expected rates by kind of measurement, for this number of GPUs of this name; empty for an
    unknown GPU."""
    sheet_line = next(
        (candidate for candidate in _GPU_MODELS if re.search(candidate.pattern, gpu_name)), None
    )
    if sheet_line is None:
        return {}
    rates: dict[str, float] = {}
    if sheet_line.pcie:
        rates |= dict.fromkeys(("host to GPU", "GPU to host"), _PCIE_GBPS[sheet_line.pcie])
    if gpu_count > 1 and sheet_line.pair:
        rates["GPU to GPU"] = sheet_line.pair
    if gpu_count > 1 and sheet_line.ring:
        rates["all-reduce"] = sheet_line.ring
    return {measurement: _REACHED_SHARE * rate for measurement, rate in rates.items()}
