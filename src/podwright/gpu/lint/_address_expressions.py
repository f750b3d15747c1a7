"""Addresses and ports as scripts write them."""

from __future__ import annotations

import re

FIRST_NODE_EXPRESSION = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
JOB_PORT_EXPRESSION = "$((20000 + SLURM_JOB_ID % 20000))"
_LOCAL_ADDRESS_PATTERN = re.compile(
    r"(tcp://)?(localhost|127\.0\.0\.1|::1|\[::1\]|0\.0\.0\.0)(:\S*)?$"
)


def is_local(address: str) -> bool:
    """Return whether an address, with or without a port, means each node itself."""
    return bool(_LOCAL_ADDRESS_PATTERN.match(address.strip().strip("'\"")))
