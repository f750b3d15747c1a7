"""`podwright slurm explain-request`: what Slurm will grant, before anything is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.errors import InvalidRequest
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive

if TYPE_CHECKING:
    from podwright.gpu.requests import KnownSite, RequestAnswer, SlurmRequest
    from podwright.slurm.site.releases import SlurmVersion

_EXAMPLES = """\
all options of sbatch, salloc and srun may follow; those that count are read.

examples:
  podwright slurm explain-request --gres=gpu:4 --nodes=2 --ntasks-per-node=2
  podwright slurm explain-request --gpus=8 --ntasks=8 --gpu-bind=single:1
  podwright slurm explain-request --for srun --gpus-per-task=1 -n4 --node-gpus 8
  podwright slurm explain-request train.sh
  podwright slurm explain-request --nodes=4 train.sh
  podwright slurm explain-request --site-files /etc/slurm -p gpu --gpus=16

the nodes, partitions and defaults are those of this site's Slurm, where there is one, or those of
the files in a folder: slurm.conf, gres.conf and cgroup.conf, or the output of `scontrol show
config`, `show node`, `show partition` and `show topology`. Else, or with --node-… options, the
nodes are equal and idle as these say; options about anything else of nodes are left out, and the
answer names them. Slurm itself is asked, in a private slurmctld; where there is none, `sbatch
--test-only` is asked, or the job's nodes, tasks and GPUs are counted. For sbatch and salloc the
tasks are those of a plain `srun program` inside the job. Exit code 0: it starts; 1: it does not;
3: not known."""


class _ExplainRequestOptions(opt.OptionTable):
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
    site_files = opt.optional(
        "a site's files (a folder, or its slurm.conf), instead of asking the Slurm of this machine",
        "PATH",
    )
    slurm_version = opt.optional("of this Slurm: 22.05 or newer", "V")
    twin = opt.text(
        "the twin service to ask: its socket, or HOST:PORT (PODWRIGHT_TWIN, "
        "/etc/podwright/twin.conf, or this machine's socket)",
        "PLACE",
    )
    rules = opt.flag("count by sbatch's manual page, and ask no slurmctld")
    steps = opt.flag(
        "show the steps: what the options mean, what Slurm answered word for word, what each "
        "task sees",
        name="--why",
    )
    json = opt.JSON


def _run(arguments: _ExplainRequestOptions) -> int:
    from podwright.gpu import requests
    from podwright.slurm.site.releases import parse_version

    request = _request(arguments)
    if not request.given:
        raise InvalidRequest(
            "no option of Slurm to explain", would_work="For example --gpus-per-node=4 --nodes=2"
        )
    site = requests.known_site(request, arguments)
    version = site.version
    if arguments.slurm_version:
        version = parse_version(arguments.slurm_version)
    explanation = _explain(request, site, version, arguments)
    show_result(
        arguments.json,
        requests.explained_json(request, explanation, site),
        lambda: requests.explained_text(request, explanation, site, with_steps=arguments.steps),
    )
    return {"yes": 0, "no": 1, "not known": 3}[explanation.judgement.says]


def _request(arguments: _ExplainRequestOptions) -> SlurmRequest:
    """The request of the words, which may end in a job script and its own arguments, as for
    sbatch."""
    from podwright.cli.shared._arguments import complain
    from podwright.gpu import requests

    _, rest = requests.parse_options(arguments.words, arguments.command, of_plugins=True)
    if arguments.command != "sbatch" or not rest or rest[0] == ":":
        return requests.parse_request(arguments.words, arguments.command)
    from podwright.gpu.lint import scripted_request

    script, *script_arguments = rest
    if any(word.startswith("-") for word in script_arguments):
        complain(f"sbatch gives the words after {script} to it: {' '.join(script_arguments)}")
    options = arguments.words[: len(arguments.words) - len(rest)]
    return scripted_request(options, arguments.command, script)


def _explain(
    request: SlurmRequest, site: KnownSite, version: SlurmVersion, arguments: _ExplainRequestOptions
) -> RequestAnswer:
    import sys

    from podwright.gpu import requests

    own = site.live and not (arguments.slurm_version or arguments.devices or arguments.tasks)
    service = None
    if own and not arguments.rules:
        from podwright.slurm.twin_service import find_twin_service

        service = find_twin_service(arguments.twin)
    if not arguments.rules and sys.stderr.isatty():
        print("Asking Slurm itself ...", file=sys.stderr, flush=True)
    sources = requests.AnswerSources(
        service, not arguments.rules, requests.run_command if own else None
    )
    return requests.explain_request(request, site, version, sources)


VERBS = (
    Verb(
        "explain-request",
        _ExplainRequestOptions,
        _run,
        help="show, before submission, what Slurm gives for these options",
        description="Say what Slurm will give for the options of a job, in a sentence and a "
        "picture.",
        epilog=_EXAMPLES,
        passing=True,
    ),
)
