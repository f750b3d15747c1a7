"""An explained request as text for people, and with its source as data for programs."""

from __future__ import annotations

from typing import Any

from podwright.gpu.requests._explain_request import COUNTED
from podwright.gpu.requests._format_answer import advice, as_json, picture
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._select_site import KnownSite, node_count
from podwright.gpu.requests._site_answer_types import CountedJob, Grant, SlurmRefusal
from podwright.gpu.requests._slurm_reply import RequestAnswer

TELLS_MORE = (
    "Slurm itself tells whether it starts and which nodes, GPUs and CPUs it gets: `podwright slurm "
    "twin serve` beside the controller serves all hosts, or install slurmctld on this one (Debian: "
    "slurmctld; SchedMD's deb: slurm-smd-slurmctld; SchedMD's rpm and EPEL: slurm-slurmctld)."
)


def explained_text(
    request: SlurmRequest,
    explained_answer: RequestAnswer,
    known_site: KnownSite,
    *,
    with_steps: bool,
) -> str:
    """Return who says what, what was left out, notes, and the nodes that the answer is about; with
    `with_steps` also how it was found."""
    judgement, answer = explained_answer.judgement, explained_answer.answer
    text_lines = [_source_line(judgement.source)] if judgement.source else []
    text_lines += [f"Note: {warning}." for warning in explained_answer.warnings]
    text_lines.append(f"{judgement.because}.")
    if isinstance(answer, SlurmRefusal) and answer.would_work:
        text_lines.append(f"What would work: {answer.would_work}.")
    if isinstance(answer, Grant):
        text_lines += ["", picture(answer)]
    text_lines += [f"Left out: {option}." for option in judgement.left_out]
    if isinstance(answer, Grant):
        text_lines += [f"Note: {note}." for note in (*answer.notes, *advice(request, answer))]
    else:
        text_lines += [f"Note: {caution}." for caution in known_site.target.site.cautions]
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
    return "\n".join([*text_lines, "", *explained_answer.steps] if with_steps else text_lines)


def _source_line(source: str) -> str:
    return f"{'Counted by' if source == COUNTED else 'Asked'} {source}."


def explained_json(
    request: SlurmRequest, explained_answer: RequestAnswer, known_site: KnownSite
) -> dict[str, Any]:
    """Return the same for programs. on.found: whether the nodes are a site's, and not assumed."""
    site = known_site.target.site
    source = explained_answer.judgement.source
    return as_json(request, explained_answer.answer) | {
        "judgement": explained_answer.judgement.as_json(),
        "source": _source_line(source) if source else "",
        "warnings": list(explained_answer.warnings),
        "steps": list(explained_answer.steps),
        "on": {
            "nodes": len(site.nodes),
            "gpus": site.shapes[0].gpus,
            "found": not known_site.assumed,
        },
    }
