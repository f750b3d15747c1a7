"""Explains a request with the best source that is available: Slurm itself, or documented counts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from podwright.errors import Denied, NoCapacity, TimedOut, Unauthenticated, Unavailable
from podwright.gpu.requests._ask_twin import (
    AskedSite,
    AsksTwins,
    ask_slurm,
    ask_twin_service,
)
from podwright.gpu.requests._count_request import count_request
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._slurm_reply import RequestAnswer
from podwright.gpu.requests._test_only import Run, ask_test_only
from podwright.gpu.requests._values import CountedJob, SlurmRefusal
from podwright.slurm.site.releases import Version

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
    request: SlurmRequest, where: AskedSite, version: Version, sources: AnswerSources
) -> RequestAnswer:
    """Return Slurm's own answer, from the twin service or a twin on this machine, or else the
    counts.
    """
    warnings: tuple[str, ...] = ()
    if sources.service and not where.site.not_known:
        try:
            return ask_twin_service(request, where.site, version, sources.service)
        except (Unavailable, TimedOut, NoCapacity, Denied, Unauthenticated) as error:
            warnings = (error.problem,)
    from_slurm = ask_slurm(request, where, version) if sources.local else None
    answer = from_slurm or explain_by_counts(request, where, version, sources.test_only)
    return replace(answer, warnings=warnings)


def explain_by_counts(
    request: SlurmRequest, where: AskedSite, version: Version, test_only: Run | None = None
) -> RequestAnswer:
    """Return the answer by counts.

    test_only: runs the site's own commands, which tell whether the job is refused and when it would
    start; None if this machine does not belong to the site.
    """
    answer, steps = count_request(request, where.site, version)
    tested = ask_test_only(request, test_only) if test_only else None
    if tested is None:
        return RequestAnswer(answer, COUNTED, steps)
    command = "srun" if request.command == "srun" else "sbatch"
    printed = (f"{command} --test-only printed: {line}" for line in tested.text.splitlines())
    steps = (*steps, *printed)
    source = COUNTED_AND_TESTED.format(command)
    if tested.reason:
        refused = SlurmRefusal("submit", tested.reason)
        if isinstance(answer, SlurmRefusal) and answer.stage == "submit":
            refused = answer.after(tested.reason)
        return RequestAnswer(refused, source, steps)
    if isinstance(answer, CountedJob):
        answer = replace(answer, starts=tested.starts)
    elif answer.stage == "submit":
        # The site accepts what a documented rule excludes. How it counts then is not documented.
        answer = SlurmRefusal(
            "unknown",
            f"Slurm would start the job at {tested.starts}, and its counts contradict each other: "
            f"{answer.reason}",
        )
    return RequestAnswer(answer, source, steps)
