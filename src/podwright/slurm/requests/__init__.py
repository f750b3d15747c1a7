"""Requests for GPUs as Slurm reads them, and what Slurm makes of each."""

from podwright.slurm.requests._explain import explain
from podwright.slurm.requests._options import (
    COMMANDS,
    NEWEST,
    OLDEST,
    OPTIONS,
    Given,
    Option,
    Version,
    find_option,
    known,
    parse_options,
    parse_version,
)
from podwright.slurm.requests._request import (
    Gpus,
    Request,
    parse_count,
    parse_gpus,
    parse_gres,
    parse_nodes,
    parse_request,
    read_request,
)
from podwright.slurm.requests._values import Grant, NodeGrant, Refusal, Shape, TaskView

__all__ = [
    "COMMANDS",
    "NEWEST",
    "OLDEST",
    "OPTIONS",
    "Given",
    "Gpus",
    "Grant",
    "NodeGrant",
    "Option",
    "Refusal",
    "Request",
    "Shape",
    "TaskView",
    "Version",
    "explain",
    "find_option",
    "known",
    "parse_count",
    "parse_gpus",
    "parse_gres",
    "parse_nodes",
    "parse_options",
    "parse_request",
    "parse_version",
    "read_request",
]
