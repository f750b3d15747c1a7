"""Requests for GPUs as Slurm reads them, and what Slurm makes of each.

The options are read quickly; the model of what Slurm does is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.slurm.gpus.requests._invalid import invalid, invalid_type
from podwright.slurm.gpus.requests._options import (
    COMMANDS,
    OPTIONS,
    Given,
    Option,
    find_option,
    known,
    parse_options,
    parse_version,
)
from podwright.slurm.gpus.requests._request import (
    Gpus,
    Request,
    parse_count,
    parse_gpus,
    parse_gres,
    parse_nodes,
    parse_request,
    read_request,
)

if TYPE_CHECKING:
    from podwright.slurm.gpus.requests._ask import ask_slurm
    from podwright.slurm.gpus.requests._explain import explain, refusal
    from podwright.slurm.gpus.requests._site import (
        Texts,
        read_kinds,
        read_shape,
        read_site,
        read_version,
        site,
    )
    from podwright.slurm.gpus.requests._sources import bundle, live
    from podwright.slurm.gpus.requests._values import (
        EVERY_SOCKET,
        Grant,
        NodeGrant,
        Partition,
        Refusal,
        Shape,
        Site,
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
    "Option",
    "Partition",
    "Refusal",
    "Request",
    "Shape",
    "Site",
    "TaskView",
    "Texts",
    "as_json",
    "ask_slurm",
    "bundle",
    "explain",
    "find_option",
    "invalid",
    "invalid_type",
    "known",
    "live",
    "parse_count",
    "parse_gpus",
    "parse_gres",
    "parse_nodes",
    "parse_options",
    "parse_request",
    "parse_version",
    "picture",
    "read_kinds",
    "read_request",
    "read_shape",
    "read_site",
    "read_version",
    "refusal",
    "sentence",
    "site",
]

_LATER = {
    "_ask": ("ask_slurm",),
    "_explain": ("explain", "refusal"),
    "_site": (
        "Texts",
        "read_kinds",
        "read_shape",
        "read_site",
        "read_version",
        "site",
    ),
    "_sources": ("bundle", "live"),
    "_values": (
        "EVERY_SOCKET",
        "Grant",
        "NodeGrant",
        "Partition",
        "Refusal",
        "Shape",
        "Site",
        "TaskView",
    ),
    "_words": ("as_json", "picture", "sentence"),
}


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(name)
