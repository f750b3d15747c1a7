"""Explains a request with the best source that is available: Slurm itself, or documented counts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from podwright.errors import Denied, NoCapacity, TimedOut, Unauthenticated, Unavailable
from podwright.gpu.requests._answer_by_counts import count_request
from podwright.gpu.requests._ask_twin import (
    AskedSite,
    AsksTwins,
    ask_slurm,
    ask_twin_service,
)
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import CountedJob, SlurmRefusal
from podwright.gpu.requests._slurm_reply import RequestAnswer
from podwright.gpu.requests._test_only import Run, ask_test_only
from podwright.slurm.site.releases import SlurmVersion

COUNTED = "Counted by the documented rules; start `podwright slurm twin serve` to know the GPUs."
COUNTED_AND_TESTED = (
    "Counted by the documented rules, and tested by `{} --test-only`; start `podwright slurm twin "
    "serve` to know the GPUs."
)
TELLS_MORE = (
    "Slurm itself tells which nodes, GPUs and CPUs the job gets: `podwright slurm twin serve` "
    "beside the controller serves all hosts, or install slurmctld on this one (Debian: slurmctld; "
    "SchedMD's deb: slurm-smd-slurmctld; SchedMD's rpm and EPEL: slurm-slurmctld)."
)


class AnswerSources(NamedTuple):
    """The available sources. service: a twin service. local: whether a twin may run on this
    machine.

    test_only: runs the site's own commands; None if this machine does not belong to the site.
    """

    service: AsksTwins | None = None
    local: bool = True
    test_only: Run | None = None


def explain_request(
    request: SlurmRequest, twin_site: AskedSite, version: SlurmVersion, sources: AnswerSources
) -> RequestAnswer:
    """Return Slurm's own answer, from the twin service or a twin on this machine, or else the
    counts.
    """
    warnings: tuple[str, ...] = ()
    if sources.service and not twin_site.site.not_known:
        try:
            return ask_twin_service(request, twin_site.site, version, sources.service)
        except (Unavailable, TimedOut, NoCapacity, Denied, Unauthenticated) as error:
            warnings = (error.problem,)
    slurm_answer = ask_slurm(request, twin_site, version) if sources.local else None
    answer = slurm_answer or explain_by_counts(request, twin_site, version, sources.test_only)
    return replace(answer, warnings=warnings)


def explain_by_counts(
    request: SlurmRequest,
    twin_site: AskedSite,
    version: SlurmVersion,
    run_test_only: Run | None = None,
) -> RequestAnswer:
    """Return the answer by counts.

    run_test_only: runs the site's own commands, which tell whether the job is refused and when it
    would start; None if this machine does not belong to the site.
    """
    answer, steps = count_request(request, twin_site.site, version)
    start_estimate = ask_test_only(request, run_test_only) if run_test_only else None
    if start_estimate is None:
        return RequestAnswer(answer, COUNTED, steps)
    tested_command = "srun" if request.command == "srun" else "sbatch"
    printed_lines = (
        f"{tested_command} --test-only printed: {line}" for line in start_estimate.text.splitlines()
    )
    steps = (*steps, *printed_lines)
    source_sentence = COUNTED_AND_TESTED.format(tested_command)
    if start_estimate.reason:
        site_refusal = SlurmRefusal("submit", start_estimate.reason)
        if isinstance(answer, SlurmRefusal) and answer.stage == "submit":
            site_refusal = answer.after(start_estimate.reason)
        return RequestAnswer(site_refusal, source_sentence, steps)
    if isinstance(answer, CountedJob):
        answer = replace(answer, starts=start_estimate.starts)
    elif answer.stage == "submit":
        # The site accepts what a documented rule excludes. How it counts then is not documented.
        answer = SlurmRefusal(
            "unknown",
            f"Slurm would start the job at {start_estimate.starts}, and its counts contradict each "
            f"other: {answer.reason}",
        )
    return RequestAnswer(answer, source_sentence, steps)
