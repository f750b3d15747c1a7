"""Explains a request with the best source that is available: Slurm itself, the site's own sbatch,
or counts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from podwright.errors import (
    Denied,
    InvalidRequest,
    NoCapacity,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from podwright.gpu.requests._ask_twin import AsksTwins, ask_slurm, ask_twin_service
from podwright.gpu.requests._assumed_nodes import assumed_request
from podwright.gpu.requests._count_job import count_request, option_steps
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._select_site import KnownSite
from podwright.gpu.requests._site_answer_types import CountedJob, SlurmRefusal
from podwright.gpu.requests._slurm_reply import RequestAnswer, judged
from podwright.gpu.requests._submitted_options import LeftOut, site_options, unanswerable
from podwright.gpu.requests._test_only import Run, ask_test_only, beyond_time_limit
from podwright.slurm.site.releases import SlurmVersion

COUNTED = "sbatch's manual page"


class AnswerSources(NamedTuple):
    """The available sources. service: a twin service. local: whether a twin may run on this
    machine.

    test_only: runs the site's own commands; None if this machine does not belong to the site.
    """

    service: AsksTwins | None = None
    local: bool = True
    test_only: Run | None = None


def explain_request(
    request: SlurmRequest, known_site: KnownSite, version: SlurmVersion, sources: AnswerSources
) -> RequestAnswer:
    """Return whether the job starts, and what it gets, from the best source that answers."""
    asked_request, left_out, problem = request, tuple[LeftOut, ...](), unanswerable(request)
    if known_site.assumed and not problem:
        asked_request, left_out, problem = assumed_request(request)
    if known_site.target.site.not_known:
        problem = f"Slurm does not show {', '.join(known_site.target.site.not_known)}"
    if problem:
        answer = SlurmRefusal("unknown", problem)
        return RequestAnswer(judged(request, answer, ""), answer, option_steps(request))
    warnings: tuple[str, ...] = ()
    best_answer: RequestAnswer | None = None
    if sources.service:
        try:
            best_answer = ask_twin_service(
                asked_request, known_site.target.site, version, sources.service
            )
        except (
            *(Unavailable, TimedOut, NoCapacity, Denied, Unauthenticated),
            InvalidRequest,
        ) as error:
            warnings = (error.problem,)
    if best_answer is None and sources.local:
        best_answer = ask_slurm(asked_request, known_site.target, version)
    if best_answer is None and sources.test_only:
        best_answer = _tested(asked_request, known_site, sources.test_only)
    best_answer = best_answer or _counted(asked_request, version)
    return replace(
        best_answer,
        warnings=warnings,
        judgement=judged(
            asked_request,
            best_answer.answer,
            best_answer.judgement.source,
            (*left_out, *best_answer.left_out),
        ),
    )


def _counted(request: SlurmRequest, version: SlurmVersion) -> RequestAnswer:
    """Return the counts, or the documented reason why Slurm refuses the request."""
    answer = count_request(request, version)
    left_out = tuple(LeftOut(name, "counts do not look at it") for name in _uncounted(request))
    return RequestAnswer(
        judged(request, answer, COUNTED), answer, option_steps(request), left_out=left_out
    )


def _uncounted(request: SlurmRequest) -> list[str]:
    counted = ("nodes", "ntasks", "gpus", "gres", "tasks-per", "tres-per-task", "cpus-per")
    return [
        given.name for given in request.given if not any(part in given.name for part in counted)
    ]


def _tested(request: SlurmRequest, known_site: KnownSite, run: Run) -> RequestAnswer | None:
    """Return what the site's own sbatch says; None if it gives no answer."""
    estimate = ask_test_only(request, run)
    if estimate is None:
        return None
    command = "srun" if request.command == "srun" else "sbatch"
    source = f"`{command} --test-only`"
    _, left_out = site_options(request)
    steps = (
        *option_steps(request),
        *(f"{command} --test-only printed: {line}" for line in estimate.text.splitlines()),
    )
    counted = count_request(request, known_site.version)
    answer: CountedJob | SlurmRefusal
    if estimate.reason:
        answer = SlurmRefusal("submit", estimate.reason)
        if isinstance(counted, SlurmRefusal):
            answer = counted.after(estimate.reason)
    else:
        too_long = beyond_time_limit(request, known_site.target.files.partitions)
        if too_long:
            answer = SlurmRefusal("waits", too_long, until="until the limit or the job is changed")
        elif too_long is None:
            answer = SlurmRefusal("unknown", "which partition's time limit holds is not known")
        elif isinstance(counted, SlurmRefusal):
            # The site accepts what a documented rule excludes; its counts are not documented then.
            answer = SlurmRefusal(
                "unknown",
                f"Slurm would start the job at {estimate.starts}, and its counts contradict each "
                f"other: {counted.reason}",
            )
        else:
            answer = replace(counted, starts=estimate.starts)
    return RequestAnswer(judged(request, answer, source), answer, steps, left_out=left_out)
