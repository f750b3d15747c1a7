"""Asks Slurm itself about a request, in a twin of the site's controller.

`ask_twin_service` asks the service beside the controller; `ask_slurm` asks a twin on this machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from podwright.errors import Denied, InvalidRequest, Unavailable
from podwright.gpu.requests._read_site import Texts
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import SlurmCluster
from podwright.gpu.requests._slurm_reply import RequestAnswer, SlurmQuestion, request_answer
from podwright.gpu.requests._submitted_options import LeftOut, twin_submission
from podwright.slurm.reader import SlurmConfig
from podwright.slurm.site.releases import SlurmVersion
from podwright.slurm.twin import (
    Granted,
    Present,
    Refused,
    SiteFiles,
    Twin,
    Waits,
    find_slurm,
    present_copied,
)
from podwright.slurm.twin_service import TwinAnswer, TwinQuestion, takes_option

_STATE_OPTIONS = ("account", "qos", "reservation")
#: Seconds for which a state of the cluster counts as present.
_MAX_PRESENT_AGE_S = 20.0


class AsksTwins(Protocol):
    """The interface of a twin service, such as `podwright.slurm.twin_service.TwinService`."""

    place: str

    def ask(self, question: TwinQuestion) -> TwinAnswer:
        """Return Slurm's answer. Raises Unavailable and similar errors."""
        ...


@dataclass(frozen=True)
class AskedSite:
    """The site with which a twin is started. site: the same site as an answer shows it.

    described: the nodes in words, for the first line of an answer. larger: for assumed nodes, the
    same with plenty of each size that nobody gave.
    """

    site: SlurmCluster
    files: SiteFiles
    present: Present | None = None
    described: str = "with this site's files, with its nodes taken as idle"
    larger: SiteFiles | None = None


def asked_site(site_texts: Texts, site: SlurmCluster, *, live: bool) -> AskedSite:
    """Return the site in these texts. live: whether they are of this machine's own Slurm.

    A live site also has its present state, if this user may read it.
    """
    from_scontrol = not site_texts.slurm_conf
    site_files = SiteFiles(
        slurm_conf=site_texts.slurm_conf,
        config=site_texts.config if from_scontrol else "",
        nodes=site_texts.nodes if from_scontrol else "",
        partitions=site_texts.partitions if from_scontrol else "",
        gres_conf=site_texts.gres_conf,
        topology_conf=site_texts.topology_conf,
        topology_yaml=site_texts.topology_yaml,
    )
    present_state = _present_state(site_texts) if live else None
    if present_state:
        return AskedSite(
            site, site_files, present_state, "with this site's files, as it stands now"
        )
    return AskedSite(site, site_files)


def ask_slurm(
    request: SlurmRequest, twin_site: AskedSite, version: SlurmVersion
) -> RequestAnswer | None:
    """Return Slurm's answer; None if this machine has no slurmctld of that release, or no place for
    a twin.
    """
    slurm_install = find_slurm(version)
    if twin_site.site.not_known or slurm_install is None:
        return None
    try:
        with Twin(twin_site.files, slurm_install, twin_site.present) as twin:
            known_state = ("reservation",) * bool(twin_site.present)
            known_state += ("account", "qos") * twin.knows_accounts
            submission, left_out = twin_submission(request, known_state)
            question = SlurmQuestion(request, submission, left_out, twin_site.site, version)
            reply = _twin_reply(twin, question, slurm_install.release)
        source = f"Slurm {slurm_install.release} {twin_site.described}"
        if twin_site.larger and not isinstance(reply.answer, Granted):
            with Twin(twin_site.larger, slurm_install) as larger_twin:
                larger_answer = larger_twin.ask(submission)
            return request_answer(question, reply, source, on_larger=larger_answer)
    except Unavailable:
        return None
    return request_answer(question, reply, source)


def ask_twin_service(
    request: SlurmRequest, site: SlurmCluster, version: SlurmVersion, service: AsksTwins
) -> RequestAnswer:
    """Return the answer of the service beside the controller. Raises Unavailable if it does not
    answer, and InvalidRequest if it does not take the question.
    """
    submission, left_out = twin_submission(request, _STATE_OPTIONS)
    options = tuple(option for option in submission.options if takes_option(option))
    left_out += tuple(
        LeftOut(option.removeprefix("--").partition("=")[0], "its value could name a file")
        for option in submission.options
        if option not in options
    )
    with_tasks = not _needs_renumbering(request, site)
    reply = service.ask(TwinQuestion(submission.command, options, tasks=with_tasks))
    left_out += tuple(LeftOut(name, "the service has no such state") for name in reply.left_out)
    state_words = "as it stands now"
    if reply.age is not None and reply.age > _MAX_PRESENT_AGE_S:
        state_words = f"as it stood {reply.age:.0f} s ago"
    if reply.age is None:
        state_words = f"with its nodes taken as idle ({reply.idle_because})"
    source = f"Slurm {reply.release} with this site's files, {state_words}, by {service.place}"
    submission = type(submission)(submission.command, options)
    return request_answer(
        SlurmQuestion(request, submission, left_out, site, version), reply, source
    )


def _twin_reply(
    twin: Twin, question: SlurmQuestion, release: str, *, with_tasks: bool = True
) -> TwinAnswer:
    answer = twin.ask(question.submission)
    reply = TwinAnswer(
        release,
        granted=answer if isinstance(answer, Granted) else None,
        waits=answer if isinstance(answer, Waits) else None,
        refused=answer if isinstance(answer, Refused) else None,
        accounts=twin.knows_accounts,
    )
    if (
        reply.granted is None
        or not with_tasks
        or _needs_renumbering(question.request, question.site)
    ):
        return reply
    return reply.with_tasks(lambda: twin.tasks(question.submission, reply.granted))


def _present_state(site_texts: Texts) -> Present | None:
    folder = SlurmConfig(site_texts.config).optional("StateSaveLocation")
    if not folder.startswith("/"):
        return None
    try:
        return present_copied(Path(folder))
    except (Denied, InvalidRequest, OSError):
        return None


def _needs_renumbering(request: SlurmRequest, site: SlurmCluster) -> bool:
    """Whether a binding lists GPUs by number, and devices are confined.

    Slurm then counts such GPUs within the job's own. A twin confines nothing, and would count them
    differently.
    """
    gpu_list_match = re.search(r"(?:map|mask)_gpu", request.bind)
    return bool(gpu_list_match) and any(hardware.confined for hardware in site.shapes)
