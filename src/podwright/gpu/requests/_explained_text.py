"""An explained request as text for people, and with its source as data for programs."""

from __future__ import annotations

from typing import Any

from podwright.gpu.requests._explain_request import TELLS_MORE
from podwright.gpu.requests._known_site import KnownSite, node_count
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._slurm_reply import RequestAnswer
from podwright.gpu.requests._values import CountedJob, Grant, SlurmRefusal
from podwright.gpu.requests._words import advice, as_json, counts_picture, picture, sentence

Explained = Grant | CountedJob | SlurmRefusal


def as_text(request: SlurmRequest, answer: Explained, known: KnownSite) -> str:
    """Return an answer for people: a sentence, a picture, notes, and the nodes that it is about."""
    lines = [sentence(request, answer)]
    if isinstance(answer, SlurmRefusal):
        if answer.would_work:
            lines.append(f"What would work: {answer.would_work}.")
    elif isinstance(answer, CountedJob):
        if pictured := counts_picture(answer):
            lines += ["", pictured]
        for note in answer.notes:
            lines.append(f"Note: {note}.")
    else:
        lines += ["", picture(answer)]
        for note in (*answer.notes, *advice(request, answer)):
            lines.append(f"Note: {note}.")
    site, shape = known.target.site, known.target.site.shapes[0]
    if known.assumed:
        lines.append(
            f"On {node_count(shape.nodes)} as assumed, idle (give --node-gpus and the like): "
            f"{shape.gpus} GPUs, {shape.sockets} sockets, {shape.cores} cores each."
        )
    else:
        down_clause = f", {len(site.down)} of them down" if site.down else ""
        lines.append(f"The site has {node_count(len(site.nodes))}{down_clause}.")
    if isinstance(answer, CountedJob):
        lines.append(TELLS_MORE)
    return "\n".join(lines)


def explained_text(
    request: SlurmRequest, explained: RequestAnswer, known: KnownSite, *, steps: bool
) -> str:
    """Return where an answer is from, the answer, and with `steps` how it was found."""
    lines = [explained.source, *(f"Note: {warning}." for warning in explained.warnings)]
    lines.append(as_text(request, explained.answer, known))
    return "\n".join([*lines, "", *explained.steps] if steps else lines)


def explained_json(
    request: SlurmRequest, explained: RequestAnswer, known: KnownSite
) -> dict[str, Any]:
    """Return the same for programs. on.found: whether the nodes are a site's, and not assumed."""
    site = known.target.site
    return as_json(request, explained.answer) | {
        "source": explained.source,
        "warnings": list(explained.warnings),
        "steps": list(explained.steps),
        "on": {
            "nodes": len(site.nodes),
            "gpus": site.shapes[0].gpus,
            "found": not known.assumed,
        },
    }
