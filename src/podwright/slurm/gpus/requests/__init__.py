"""Requests for GPUs as Slurm reads them, and what Slurm makes of each.

The options are read quickly; the model of what Slurm does is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.slurm.gpus.requests._request import (
    Gpus,
    SlurmRequest,
    other_parts,
    parse_count,
    parse_gpus,
    parse_gres,
    parse_nodes,
    parse_request,
    read_request,
)
from podwright.slurm.gpus.requests._slurm_options import (
    COMMANDS,
    OPTIONS,
    Given,
    SlurmOption,
    find_option,
    known,
    parse_options,
)
from podwright.slurm.gpus.requests._units import is_number

if TYPE_CHECKING:
    from podwright.slurm.gpus.requests._decide import explain, refusal
    from podwright.slurm.gpus.requests._read_site import (
        Texts,
        read_kinds,
        read_shape,
        read_site,
        site,
    )
    from podwright.slurm.gpus.requests._sources import bundle, live
    from podwright.slurm.gpus.requests._values import (
        EVERY_SOCKET,
        Grant,
        NodeGrant,
        NodeHardware,
        SlurmCluster,
        SlurmPartition,
        SlurmRefusal,
        TaskView,
    )
    from podwright.slurm.gpus.requests._words import as_json, picture, sentence

__all__ = [
    "COMMANDS",
    "EVERY_SOCKET",
    "OPTIONS",
    "Given",
    "Gpus",
    "Grant",
    "NodeGrant",
    "NodeHardware",
    "SlurmCluster",
    "SlurmOption",
    "SlurmPartition",
    "SlurmRefusal",
    "SlurmRequest",
    "TaskView",
    "Texts",
    "as_json",
    "bundle",
    "explain",
    "find_option",
    "is_number",
    "known",
    "live",
    "other_parts",
    "parse_count",
    "parse_gpus",
    "parse_gres",
    "parse_nodes",
    "parse_options",
    "parse_request",
    "picture",
    "read_kinds",
    "read_request",
    "read_shape",
    "read_site",
    "refusal",
    "sentence",
    "site",
]

_LATER = {
    "_decide": ("explain", "refusal"),
    "_read_site": (
        "Texts",
        "read_kinds",
        "read_shape",
        "read_site",
        "site",
    ),
    "_sources": ("bundle", "live"),
    "_values": (
        "EVERY_SOCKET",
        "Grant",
        "NodeGrant",
        "SlurmPartition",
        "SlurmRefusal",
        "NodeHardware",
        "SlurmCluster",
        "TaskView",
    ),
    "_words": ("as_json", "picture", "sentence"),
}


if not TYPE_CHECKING:  # with it, no misspelt name would be found

    def __getattr__(name: str) -> Any:
        import importlib

        for module, names in _LATER.items():
            if name in names:
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(name)
