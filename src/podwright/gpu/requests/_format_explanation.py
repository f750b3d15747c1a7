"""An explained request as text for people, and with its source as data for programs."""

from __future__ import annotations

from typing import Any

from podwright.gpu.requests._explain_request import TELLS_MORE
from podwright.gpu.requests._format_answer import advice, as_json, counts_picture, picture, sentence
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._select_site import KnownSite, node_count
from podwright.gpu.requests._site_answer_types import CountedJob, Grant, SlurmRefusal
from podwright.gpu.requests._slurm_reply import RequestAnswer

ExplainedAnswer = Grant | CountedJob | SlurmRefusal


def as_text(request: SlurmRequest, answer: ExplainedAnswer, known_site: KnownSite) -> str:
    """Return an answer for people: a sentence, a picture, notes, and the nodes that it is about."""
    text_lines = [sentence(request, answer)]
    if isinstance(answer, SlurmRefusal):
        if answer.would_work:
            text_lines.append(f"What would work: {answer.would_work}.")
    elif isinstance(answer, CountedJob):
        if gpu_picture := counts_picture(answer):
            text_lines += ["", gpu_picture]
        for note in answer.notes:
            text_lines.append(f"Note: {note}.")
    else:
        text_lines += ["", picture(answer)]
        for note in (*answer.notes, *advice(request, answer)):
            text_lines.append(f"Note: {note}.")
    site, node_hardware = known_site.target.site, known_site.target.site.shapes[0]
    if known_site.assumed:
        text_lines.append(
            f"On {node_count(node_hardware.nodes)} as assumed, idle (give --node-gpus and the "
            "like): "
            f"{node_hardware.gpus} GPUs, {node_hardware.sockets} sockets, {node_hardware.cores} "
            "cores each."
        )
    else:
        down_clause = f", {len(site.down)} of them down" if site.down else ""
        text_lines.append(f"The site has {node_count(len(site.nodes))}{down_clause}.")
    if isinstance(answer, CountedJob):
        text_lines.append(TELLS_MORE)
    return "\n".join(text_lines)


def explained_text(
    request: SlurmRequest,
    explained_answer: RequestAnswer,
    known_site: KnownSite,
    *,
    with_steps: bool,
) -> str:
    """Return where an answer is from, the answer, and with `with_steps` how it was found."""
    text_lines = [
        explained_answer.source,
        *(f"Note: {warning}." for warning in explained_answer.warnings),
    ]
    text_lines.append(as_text(request, explained_answer.answer, known_site))
    return "\n".join([*text_lines, "", *explained_answer.steps] if with_steps else text_lines)


def explained_json(
    request: SlurmRequest, explained_answer: RequestAnswer, known_site: KnownSite
) -> dict[str, Any]:
    """Return the same for programs. on.found: whether the nodes are a site's, and not assumed."""
    site = known_site.target.site
    return as_json(request, explained_answer.answer) | {
        "source": explained_answer.source,
        "warnings": list(explained_answer.warnings),
        "steps": list(explained_answer.steps),
        "on": {
            "nodes": len(site.nodes),
            "gpus": site.shapes[0].gpus,
            "found": not known_site.assumed,
        },
    }
