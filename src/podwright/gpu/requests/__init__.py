"""Reads requests for GPUs as Slurm reads them, and explains what Slurm makes of each.

Importing this package is quick: whatever answers a request is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.gpu.requests._request import (
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
from podwright.gpu.requests._slurm_options import (
    COMMANDS,
    NEW_NAMES,
    OPTIONS,
    Given,
    SlurmOption,
    find_option,
    known,
    may_be_a_plugins,
    meant_option,
    parse_options,
)
from podwright.gpu.requests._units import is_number
from podwright.ground.lazy_imports import lazy_names

if TYPE_CHECKING:
    from podwright.gpu.requests._ask_twin import (
        AskedSite,
        ask_slurm,
        ask_twin_service,
        asked_site,
    )
    from podwright.gpu.requests._assumed_nodes import assumed_request, assumed_site
    from podwright.gpu.requests._collect_site_texts import bundle, live
    from podwright.gpu.requests._consistent_counts import refusal
    from podwright.gpu.requests._count_job import count_request
    from podwright.gpu.requests._explain_request import AnswerSources, explain_request
    from podwright.gpu.requests._format_answer import advice, as_json, picture, sentence
    from podwright.gpu.requests._format_explanation import explained_json, explained_text
    from podwright.gpu.requests._read_site import Texts, read_shape, read_site
    from podwright.gpu.requests._select_site import KnownSite, known_site
    from podwright.gpu.requests._site_answer_types import (
        CountedJob,
        Grant,
        NodeHardware,
        SlurmCluster,
        SlurmRefusal,
    )
    from podwright.gpu.requests._site_conf_files import read_site_files
    from podwright.gpu.requests._slurm_reply import RequestAnswer
    from podwright.gpu.requests._submitted_options import LeftOut, twin_submission
    from podwright.gpu.requests._test_only import run_command

__all__ = [
    "COMMANDS",
    "NEW_NAMES",
    "OPTIONS",
    "AnswerSources",
    "AskedSite",
    "CountedJob",
    "Given",
    "Gpus",
    "Grant",
    "KnownSite",
    "LeftOut",
    "NodeHardware",
    "RequestAnswer",
    "SlurmCluster",
    "SlurmOption",
    "SlurmRefusal",
    "SlurmRequest",
    "Texts",
    "advice",
    "as_json",
    "ask_slurm",
    "ask_twin_service",
    "asked_site",
    "assumed_request",
    "assumed_site",
    "bundle",
    "count_request",
    "explain_request",
    "explained_json",
    "explained_text",
    "find_option",
    "is_number",
    "known",
    "known_site",
    "live",
    "may_be_a_plugins",
    "meant_option",
    "other_parts",
    "parse_count",
    "parse_gpus",
    "parse_gres",
    "parse_nodes",
    "parse_options",
    "parse_request",
    "picture",
    "read_request",
    "read_shape",
    "read_site",
    "read_site_files",
    "refusal",
    "run_command",
    "sentence",
    "twin_submission",
]

#: Each module, and the names that come from it.
_LATER = {
    "_ask_twin": ("AskedSite", "ask_slurm", "ask_twin_service", "asked_site"),
    "_assumed_nodes": ("assumed_request", "assumed_site"),
    "_consistent_counts": ("refusal",),
    "_count_job": ("count_request",),
    "_explain_request": ("AnswerSources", "explain_request"),
    "_format_explanation": ("explained_json", "explained_text"),
    "_select_site": ("KnownSite", "known_site"),
    "_site_conf_files": ("read_site_files",),
    "_read_site": ("Texts", "read_shape", "read_site"),
    "_slurm_reply": ("RequestAnswer",),
    "_collect_site_texts": ("bundle", "live"),
    "_submitted_options": ("LeftOut", "twin_submission"),
    "_test_only": ("run_command",),
    "_site_answer_types": ("CountedJob", "Grant", "NodeHardware", "SlurmCluster", "SlurmRefusal"),
    "_format_answer": ("advice", "as_json", "picture", "sentence"),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
