"""`podwright slurm explain-request`: what Slurm will grant, before anything is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright import option_rows as opt
from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.errors import InvalidRequest
from podwright.option_rows import positive

if TYPE_CHECKING:
    from podwright.gpu.requests import KnownSite, RequestAnswer, SlurmRequest
    from podwright.slurm.site.releases import SlurmVersion

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
    steps = opt.flag(
        "show the steps: what the options mean, what Slurm answered word for word, what each "
        "task sees",
        name="--why",
    )
    json = opt.JSON


def _run(arguments: _ExplainRequestOptions) -> int:
    from podwright.gpu import requests
    from podwright.slurm.site.releases import parse_version

    if arguments.script:
        from podwright.gpu.lint import scripted_request

        request = scripted_request(arguments.words, arguments.command, arguments.script)
    else:
        request = requests.parse_request(arguments.words, arguments.command)
    if not request.given:
        raise InvalidRequest(
            "no option of Slurm to explain", would_work="For example --gpus-per-node=4 --nodes=2"
        )
    site = requests.known_site(request, arguments)
    version = site.version
    if arguments.slurm_version:
        version = parse_version(arguments.slurm_version)
    explanation = _explain(request, site, version, arguments)
    answer = explanation.answer
    show_result(
        arguments.json,
        requests.explained_json(request, explanation, site),
        lambda: requests.explained_text(request, explanation, site, with_steps=arguments.steps),
    )
    if isinstance(answer, requests.SlurmRefusal):
        return 3 if answer.stage == "unknown" else 1
    return 0


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
    return requests.explain_request(request, site.target, version, sources)


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
