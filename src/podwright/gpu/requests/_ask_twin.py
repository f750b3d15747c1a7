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
from podwright.gpu.requests._slurm_reply import (
    RequestAnswer,
    SlurmQuestion,
    SlurmReply,
    request_answer,
)
from podwright.gpu.requests._submission import command_of, deciding_options, twin_submission
from podwright.gpu.requests._values import SlurmCluster
from podwright.slurm.reader import SlurmConfig
from podwright.slurm.site.ask import Ask
from podwright.slurm.site.ask import ask_slurm as site_command
from podwright.slurm.site.releases import Version
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

_SHOW_USE = (("--details", "show", "job"), ("--details", "show", "node"), ("show", "reservation"))
#: Seconds for which a state of the cluster counts as present.
_PRESENT = 20.0


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


def asked_site(texts: Texts, site: SlurmCluster, *, live: bool) -> AskedSite:
    """Return the site in these texts. live: whether they are of this machine's own Slurm.

    A live site also has its present state, if this user may read it.
    """
    files = SiteFiles(
        config=texts.config,
        nodes=texts.nodes,
        partitions=texts.partitions,
        gres_conf=texts.gres_conf,
        topology_conf=texts.topology_conf,
        topology_yaml=texts.topology_yaml,
    )
    present = _present(texts) if live else None
    if present:
        return AskedSite(site, files, present, "with this site's files, as it stands now")
    if live and find_slurm(SlurmConfig(texts.config).version):
        return _as_any_user_sees(site, files)
    return AskedSite(site, files)


def _as_any_user_sees(site: SlurmCluster, files: SiteFiles, ask: Ask = site_command) -> AskedSite:
    """Return the site with placeholders for its jobs, if possible, and with the members of
    AllowGroups.

    Only root asks as a user without rights, and that user is in no group.
    """
    if os.getuid():
        files = replace(files, names=read_names(lambda words: "", allowed_groups(files)))
    outputs = [ask(["scontrol", "--oneliner", *words]) for words in _SHOW_USE]
    try:
        present = present_from(*outputs)
    except (InvalidRequest, FieldNotKnown) as error:
        described = f"with this site's files, with its nodes taken as idle ({error.problem})"
        return AskedSite(site, files, described=described)
    described = "with this site's files, its nodes in use as any user can read"
    return AskedSite(site, files, present, described)


def ask_slurm(request: SlurmRequest, where: AskedSite, version: Version) -> RequestAnswer | None:
    """Return Slurm's answer; None if this machine has no slurmctld of that release, or no place for
    a twin.

    Placeholders take a slurmd, which a twin without namespaces has not. Slurm then answers for idle
    nodes, and the answer says why.
    """
    if where.site.not_known:
        return None
    slurm = find_slurm(version)
    if slurm is None:
        return None
    question = SlurmQuestion(
        request, *twin_submission(request, reservations=where.present is not None)
    )
    try:
        with Twin(where.files, slurm, where.present) as twin:
            reply = _reply(twin, question, where.site)
    except Unavailable as error:
        if where.present is None or where.present.state:
            return None
        described = f"with this site's files, with its nodes taken as idle ({error.problem})"
        return ask_slurm(request, replace(where, present=None, described=described), version)
    source = f"Asked Slurm {slurm.release} {where.described}."
    return request_answer(question, reply, source, where.site, version)


def ask_twin_service(
    request: SlurmRequest, site: SlurmCluster, version: Version, service: AsksTwins
) -> RequestAnswer:
    """Return the answer of the service beside the controller. Raises Unavailable if it does not
    answer.
    """
    options = deciding_options(request)
    accepted = tuple(option for option in options if takes_option(option))
    left_out = tuple(
        option.removeprefix("--").partition("=")[0] for option in options if option not in accepted
    )
    question = SlurmQuestion(request, Submission(command_of(request), accepted), left_out)
    with_tasks = not _renumbered(request, site)
    served = service.ask(TwinQuestion(question.submission.command, accepted, tasks=with_tasks))
    question = question._replace(left_out=(*left_out, *served.left_out))
    reply = SlurmReply(
        served.answer,
        served.tasks,
        served.step_problem,
        served.tasks_problem,
        served.accounts,
    )
    state = "as it stands now"
    if served.age is not None and served.age > _PRESENT:
        state = f"as it stood {served.age:.0f} s ago"
    if served.age is None:
        state = f"with its nodes taken as idle ({served.idle_because})"
    source = f"Asked Slurm {served.release} with this site's files, {state}, by {service.place}."
    return request_answer(question, reply, source, site, version)


def _reply(twin: Twin, question: SlurmQuestion, site: SlurmCluster) -> SlurmReply:
    answer = twin.ask(question.submission)
    tasks: tuple[TaskOutcome, ...] = ()
    if not isinstance(answer, Granted) or _renumbered(question.request, site):
        return SlurmReply(answer)
    try:
        tasks = twin.tasks(question.submission, answer)
    except WrongState as error:
        return SlurmReply(answer, step_problem=error.problem)
    except Unavailable as error:
        return SlurmReply(answer, tasks_problem=error.problem)
    return SlurmReply(answer, tasks)


def _present(texts: Texts) -> Present | None:
    folder = SlurmConfig(texts.config).optional("StateSaveLocation")
    if not folder.startswith("/"):
        return None
    try:
        return present_copied(Path(folder))
    except (Denied, InvalidRequest, OSError):
        return None


def _renumbered(request: SlurmRequest, site: SlurmCluster) -> bool:
    """Return the GPUs of a list or mask, numbered as a twin counts them.

    With confined devices, Slurm counts such GPUs within the job's own. A twin confines nothing, and
    would count them differently.
    """
    lists = re.search(r"(?:map|mask)_gpu", request.bind)
    return bool(lists) and any(shape.confined for shape in site.shapes)
