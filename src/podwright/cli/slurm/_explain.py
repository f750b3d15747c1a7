"""`podwright slurm explain-request`: what Slurm will grant, before anything is submitted."""

from __future__ import annotations

from typing import Any, NamedTuple

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._arguments import positive
from podwright.cli.shared._verb import Verb
from podwright.errors import InvalidRequest, Unavailable

_EXAMPLES = """\
all options of sbatch, salloc and srun may follow; those that count are read.

examples:
  podwright slurm explain-request --gres=gpu:4 --nodes=2 --ntasks-per-node=2
  podwright slurm explain-request --gpus=8 --ntasks=8 --gpu-bind=single:1
  podwright slurm explain-request --for srun --gpus-per-task=1 -n4 --node-gpus 8
  podwright slurm explain-request --script train.sh --nodes=4
  podwright slurm explain-request --site-files sent/ --partition=gpu --gpus=16

the nodes, partitions and defaults are those of this site's Slurm, where there is one, or those of
the files in a folder: the output of `scontrol show config`, `show node`, `show partition` and
`show topology`, and gres.conf and cgroup.conf. Else, or with --node-… options, the nodes are
equal and idle as these say. Slurm itself is asked, in a private slurmctld; where there is none,
counts are told by the documented rules, and `sbatch --test-only` is asked. For sbatch and salloc
the tasks are those of a plain `srun program` inside the job. Exit code 0: it starts, or no
documented rule stands against it; 1: it does not; 3: not known."""


class ExplainRequestOptions(opt.OptionTable):
    """The options of `explain-request`."""

    command = opt.choice(
        "the command that the options are for (sbatch)",
        ("sbatch", "salloc", "srun"),
        "sbatch",
        name="--for",
    )
    cluster_nodes = opt.value("nodes there are", "N", positive, None)
    node_gpus = opt.value("GPUs of one node (8)", "N", positive, None)
    node_sockets = opt.value("sockets (2)", "N", positive, None)
    node_cores = opt.value("cores of one node (64)", "N", positive, None)
    devices = opt.choice(
        "confined: ConstrainDevices=yes in cgroup.conf, programs number GPUs from 0",
        ("confined", "open"),
        None,
    )
    tasks = opt.choice(
        "bound: TaskPlugin=task/affinity, every task has cores of its own",
        ("bound", "free"),
        None,
        name="--task-cpus",
    )
    script = opt.optional(
        "take the options of this job script, as sbatch does; those after it come on top", "FILE"
    )
    site_files = opt.optional(
        "a site's files, instead of asking the Slurm of this machine", "FOLDER"
    )
    slurm_version = opt.optional("of this Slurm: 22.05 or newer", "V")
    twin = opt.text(
        "the twin service to ask: its socket, or HOST:PORT (PODWRIGHT_TWIN, "
        "/etc/podwright/twin.conf, or this machine's socket)",
        "PLACE",
    )
    rules = opt.flag("count by the documented rules, and ask no slurmctld")
    why = opt.flag(
        "show the steps: what the options mean, what Slurm answered word for word, what each "
        "task sees"
    )
    json = opt.JSON


def _run(arguments: ExplainRequestOptions) -> int:
    from podwright.gpu import requests
    from podwright.slurm.site.releases import parse_version

    request = _request(arguments)
    if not request.given:
        raise InvalidRequest(
            "no option of Slurm to explain", would_work="For example --gpus-per-node=4 --nodes=2"
        )
    known = _known_site(request, arguments)
    version = known.version
    if arguments.slurm_version:
        version = parse_version(arguments.slurm_version)
    explanation = _explain(request, known, version, arguments)
    answer = explanation.answer
    if arguments.json:
        import json

        body = requests.as_json(request, answer)
        body["source"] = explanation.source
        body["warnings"] = list(explanation.warnings)
        body["steps"] = list(explanation.steps)
        site = known.target.site
        body["on"] = {
            "nodes": len(site.nodes),
            "gpus": site.shapes[0].gpus,
            "found": not known.assumed,
        }
        print(json.dumps(body, indent=2))
    else:
        print(explanation.source)
        for warning in explanation.warnings:
            print(f"Note: {warning}.")
        _print(request, answer, known)
        if arguments.why:
            print("", *explanation.steps, sep="\n")
    if isinstance(answer, requests.SlurmRefusal):
        return 3 if answer.stage == "unknown" else 1
    return 0


class _KnownSite(NamedTuple):
    """The site that a request is checked against.

    assumed: whether the nodes come from the options and not from a site. live: whether the site is
    that of this machine's own Slurm.
    """

    target: Any
    version: Any
    assumed: bool = False
    live: bool = False


def _explain(
    request: Any, known: _KnownSite, version: Any, arguments: ExplainRequestOptions
) -> Any:
    import sys

    from podwright.gpu import requests

    own = known.live and not (arguments.slurm_version or arguments.devices or arguments.tasks)
    service = None
    if own and not arguments.rules:
        from podwright.slurm.twin_service import find_twin_service

        service = find_twin_service(arguments.twin)
    if not arguments.rules and sys.stderr.isatty():
        print("Asking Slurm itself ...", file=sys.stderr, flush=True)
    sources = requests.AnswerSources(
        service, not arguments.rules, requests.run_command if own else None
    )
    return requests.explain_request(request, known.target, version, sources)


def _print(request: Any, answer: Any, known: _KnownSite) -> None:
    from podwright.gpu import requests

    print(requests.sentence(request, answer))
    if isinstance(answer, requests.SlurmRefusal):
        if answer.would_work:
            print(f"What would work: {answer.would_work}.")
    elif isinstance(answer, requests.CountedJob):
        if picture := requests.counts_picture(answer):
            print("", picture, sep="\n")
        for note in answer.notes:
            print(f"Note: {note}.")
    else:
        print("", requests.picture(answer), sep="\n")
        for note in (*answer.notes, *requests.advice(request, answer)):
            print(f"Note: {note}.")
    site, shape = known.target.site, known.target.site.shapes[0]
    if known.assumed:
        print(
            f"On {_nodes(shape.nodes)} as assumed, idle (give --node-gpus and the like): "
            f"{shape.gpus} GPUs, {shape.sockets} sockets, {shape.cores} cores each."
        )
    else:
        down = f", {len(site.down)} of them down" if site.down else ""
        print(f"The site has {_nodes(len(site.nodes))}{down}.")
    if isinstance(answer, requests.CountedJob):
        print(requests.TELLS_MORE)


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _request(arguments: ExplainRequestOptions) -> Any:
    """Return the options of the script, if one is named, overridden by those of the command
    line.
    """
    from pathlib import Path

    from podwright.gpu import requests

    given, rest_of_line = requests.parse_options(arguments.words, arguments.command)
    given += requests.other_parts(rest_of_line)
    if not arguments.script:
        return requests.read_request(given, arguments.command)
    from podwright.gpu import lint

    try:
        text = Path(arguments.script).read_text(errors="replace")
    except OSError as error:
        raise InvalidRequest(f"{arguments.script}: {error.strerror or error}") from error
    script = lint.read_script(text)
    for problem in (*script.problems, *script.unknown):
        raise InvalidRequest(f"{arguments.script}:{problem.line}: {problem.reason}")
    if script.parts > 1:
        raise InvalidRequest(
            f"{arguments.script}: parts of a heterogeneous job cannot be explained"
        )
    before = [directive for _, directive in script.directives]
    names = {directive.name for directive in given}
    rest = [directive for directive in before if directive.name not in names]
    return requests.read_request(rest + given, arguments.command)


def _known_site(request: Any, arguments: ExplainRequestOptions) -> _KnownSite:
    """Return the site of the files, or of this machine's Slurm, or assumed nodes.

    Raises Unavailable when there is a Slurm that does not answer all questions.
    """
    from pathlib import Path

    from podwright.gpu import requests
    from podwright.slurm.reader import SlurmConfig
    from podwright.slurm.site.ask import has_controller
    from podwright.slurm.site.releases import NEWEST

    texts: Any
    nodes_given = (
        arguments.cluster_nodes,
        arguments.node_gpus,
        arguments.node_sockets,
        arguments.node_cores,
    )
    if arguments.site_files:
        texts = requests.bundle(Path(arguments.site_files))
    elif any(nodes_given):
        texts = None
    else:
        texts = requests.live()
        if not (texts and texts.nodes and texts.partitions) and has_controller():
            raise Unavailable(
                "Slurm's controller did not answer, so what it would give is not known",
                would_work="Try again, hand over --site-files, or describe nodes: --node-gpus 8",
            )
    if texts is None:
        return _assumed(request, arguments)
    texts = _with_tasks(texts, arguments)
    site = _with_devices(requests.read_site(texts), arguments)
    if not site.nodes:
        return _assumed(request, arguments)
    version = SlurmConfig(texts.config).optional("SLURM_VERSION")
    live = not arguments.site_files
    site_answer = requests.asked_site(texts, site, live=live)
    return _KnownSite(
        site_answer,
        SlurmConfig(texts.config).version if version else NEWEST,
        live=live,
    )


def _assumed(request: Any, arguments: ExplainRequestOptions) -> _KnownSite:
    """Return the nodes of the options, with common values for what these leave open.

    The release is that of the Slurm on this machine, or the newest.
    """
    from podwright.gpu import requests
    from podwright.slurm.site.releases import NEWEST
    from podwright.slurm.twin import find_slurm

    sockets = arguments.node_sockets or 2
    shape = requests.NodeHardware(
        nodes=arguments.cluster_nodes or max(64, request.max_nodes or 0),
        sockets=sockets,
        cores_per_socket=max(1, (arguments.node_cores or 64) // sockets),
        gpus=arguments.node_gpus or 8,
        confined=arguments.devices != "open",
        affinity=arguments.tasks == "bound",
    )
    site, files = requests.assumed_site(request, shape)
    described = f"about {_nodes(shape.nodes)} as assumed, idle"
    slurm = find_slurm()
    version = slurm.version if slurm else NEWEST
    return _KnownSite(requests.AskedSite(site, files, None, described), version, assumed=True)


def _with_tasks(texts: Any, arguments: ExplainRequestOptions) -> Any:
    """Return the site with --task-cpus in place of its TaskPlugin."""
    import re
    from dataclasses import replace

    if not arguments.tasks:
        return texts
    plugin = "task/affinity" if arguments.tasks == "bound" else "task/none"
    config = re.sub(r"(?m)^(TaskPlugin\s*=).*", rf"\1 {plugin}", texts.config)
    return replace(texts, config=config)


def _with_devices(site: Any, arguments: ExplainRequestOptions) -> Any:
    """Return the site with --devices in place of its ConstrainDevices."""
    from dataclasses import replace

    if not arguments.devices:
        return site
    confined = arguments.devices == "confined"
    return replace(site, shapes=tuple(replace(shape, confined=confined) for shape in site.shapes))


VERBS = (
    Verb(
        "explain-request",
        ExplainRequestOptions,
        _run,
        help="show, before submission, what Slurm gives for these options",
        description="Say what Slurm will give for the options of a job, in a sentence and a "
        "picture.",
        epilog=_EXAMPLES,
        passing=True,
    ),
)
