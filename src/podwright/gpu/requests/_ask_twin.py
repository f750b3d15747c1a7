"""Asks Slurm itself about a request, in a twin of the site's controller.

`ask_twin_service` asks the service beside the controller; `ask_slurm` asks a twin on this machine.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from podwright.errors import Denied, FieldNotKnown, InvalidRequest, Unavailable, WrongState
from podwright.gpu.requests._read_site import Texts
from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._site_answer_types import SlurmCluster
from podwright.gpu.requests._slurm_reply import (
    RequestAnswer,
    SlurmQuestion,
    SlurmReply,
    request_answer,
)
from podwright.gpu.requests._submitted_options import command_of, deciding_options, twin_submission
from podwright.slurm.reader import SlurmConfig
from podwright.slurm.site.blocking_commands import Ask
from podwright.slurm.site.blocking_commands import ask_slurm as site_command
from podwright.slurm.site.releases import SlurmVersion
from podwright.slurm.twin import (
    Granted,
    Present,
    SiteFiles,
    Submission,
    TaskOutcome,
    Twin,
    allowed_groups,
    find_slurm,
    present_copied,
    present_from,
    read_names,
)
from podwright.slurm.twin_service import TwinAnswer, TwinQuestion, takes_option

_SHOW_USE_COMMANDS = (
    ("--details", "show", "job"),
    ("--details", "show", "node"),
    ("show", "reservation"),
)
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
    """The site with which a twin is started. site: the same site for the counts.

    described: the nodes in words, for the first line of an answer.
    """

    site: SlurmCluster
    files: SiteFiles
    present: Present | None = None
    described: str = "with this site's files, with its nodes taken as idle"


def asked_site(site_texts: Texts, site: SlurmCluster, *, live: bool) -> AskedSite:
    """Return the site in these texts. live: whether they are of this machine's own Slurm.

    A live site also has its present state, if this user may read it.
    """
    site_files = SiteFiles(
        config=site_texts.config,
        nodes=site_texts.nodes,
        partitions=site_texts.partitions,
        gres_conf=site_texts.gres_conf,
        topology_conf=site_texts.topology_conf,
        topology_yaml=site_texts.topology_yaml,
    )
    present_state = _present_state(site_texts) if live else None
    if present_state:
        return AskedSite(
            site, site_files, present_state, "with this site's files, as it stands now"
        )
    if live and find_slurm(SlurmConfig(site_texts.config).version):
        return _as_any_user_sees(site, site_files)
    return AskedSite(site, site_files)


def _as_any_user_sees(
    site: SlurmCluster, site_files: SiteFiles, ask_command: Ask = site_command
) -> AskedSite:
    """Return the site with placeholders for its jobs, if possible, and with the members of
    AllowGroups.

    Only root asks as a user without rights, and that user is in no group.
    """
    if os.getuid():
        site_files = replace(
            site_files, names=read_names(lambda arguments: "", allowed_groups(site_files))
        )
    scontrol_outputs = [
        ask_command(["scontrol", "--oneliner", *arguments]) for arguments in _SHOW_USE_COMMANDS
    ]
    try:
        present_state = present_from(*scontrol_outputs)
    except (InvalidRequest, FieldNotKnown) as error:
        description = f"with this site's files, with its nodes taken as idle ({error.problem})"
        return AskedSite(site, site_files, described=description)
    description = "with this site's files, its nodes in use as any user can read"
    return AskedSite(site, site_files, present_state, description)


def ask_slurm(
    request: SlurmRequest, twin_site: AskedSite, version: SlurmVersion
) -> RequestAnswer | None:
    """Return Slurm's answer; None if this machine has no slurmctld of that release, or no place for
    a twin.

    Placeholders take a slurmd, which a twin without namespaces has not. Slurm then answers for idle
    nodes, and the answer says why.
    """
    if twin_site.site.not_known:
        return None
    slurm_install = find_slurm(version)
    if slurm_install is None:
        return None
    question = SlurmQuestion(
        request, *twin_submission(request, reservations=twin_site.present is not None)
    )
    try:
        with Twin(twin_site.files, slurm_install, twin_site.present) as twin:
            reply = _twin_reply(twin, question, twin_site.site)
    except Unavailable as error:
        if twin_site.present is None or twin_site.present.state:
            return None
        description = f"with this site's files, with its nodes taken as idle ({error.problem})"
        return ask_slurm(request, replace(twin_site, present=None, described=description), version)
    source_sentence = f"Asked Slurm {slurm_install.release} {twin_site.described}."
    return request_answer(question, reply, source_sentence, twin_site.site, version)


def ask_twin_service(
    request: SlurmRequest, site: SlurmCluster, version: SlurmVersion, service: AsksTwins
) -> RequestAnswer:
    """Return the answer of the service beside the controller. Raises Unavailable if it does not
    answer.
    """
    request_options = deciding_options(request)
    accepted_options = tuple(option for option in request_options if takes_option(option))
    left_out_options = tuple(
        option.removeprefix("--").partition("=")[0]
        for option in request_options
        if option not in accepted_options
    )
    question = SlurmQuestion(
        request, Submission(command_of(request), accepted_options), left_out_options
    )
    with_tasks = not _needs_renumbering(request, site)
    service_answer = service.ask(
        TwinQuestion(question.submission.command, accepted_options, tasks=with_tasks)
    )
    question = question._replace(left_out=(*left_out_options, *service_answer.left_out))
    reply = SlurmReply(
        service_answer.answer,
        service_answer.tasks,
        service_answer.step_problem,
        service_answer.tasks_problem,
        service_answer.accounts,
    )
    state_words = "as it stands now"
    if service_answer.age is not None and service_answer.age > _MAX_PRESENT_AGE_S:
        state_words = f"as it stood {service_answer.age:.0f} s ago"
    if service_answer.age is None:
        state_words = f"with its nodes taken as idle ({service_answer.idle_because})"
    source_sentence = (
        f"Asked Slurm {service_answer.release} with this site's files, {state_words}, by "
        f"{service.place}."
    )
    return request_answer(question, reply, source_sentence, site, version)


def _twin_reply(twin: Twin, question: SlurmQuestion, site: SlurmCluster) -> SlurmReply:
    answer = twin.ask(question.submission)
    task_outcomes: tuple[TaskOutcome, ...] = ()
    if not isinstance(answer, Granted) or _needs_renumbering(question.request, site):
        return SlurmReply(answer)
    try:
        task_outcomes = twin.tasks(question.submission, answer)
    except WrongState as error:
        return SlurmReply(answer, step_problem=error.problem)
    except Unavailable as error:
        return SlurmReply(answer, tasks_problem=error.problem)
    return SlurmReply(answer, task_outcomes)


def _present_state(site_texts: Texts) -> Present | None:
    state_folder = SlurmConfig(site_texts.config).optional("StateSaveLocation")
    if not state_folder.startswith("/"):
        return None
    try:
        return present_copied(Path(state_folder))
    except (Denied, InvalidRequest, OSError):
        return None


def _needs_renumbering(request: SlurmRequest, site: SlurmCluster) -> bool:
    """Return the GPUs of a list or mask, numbered as a twin counts them.

    With confined devices, Slurm counts such GPUs within the job's own. A twin confines nothing, and
    would count them differently.
    """
    gpu_list_match = re.search(r"(?:map|mask)_gpu", request.bind)
    return bool(gpu_list_match) and any(node_hardware.confined for node_hardware in site.shapes)
