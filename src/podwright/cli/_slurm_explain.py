"""`podwright slurm explain-request`: what Slurm will give, before anything is submitted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from podwright.cli._arguments import Parser, positive
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
equal and idle as said there. For sbatch and salloc the tasks are those of a plain `srun program`
inside the job. Exit code 0: it starts; 1: it does not; 3: not known."""

_OWN = {
    "--for": True,
    "--cluster-nodes": True,
    "--node-gpus": True,
    "--node-sockets": True,
    "--node-cores": True,
    "--devices": True,
    "--tasks": True,
    "--slurm-version": True,
    "--script": True,
    "--site-files": True,
    "--json": False,
    "--help": False,
    "-h": False,
}


class _Passing(Parser):
    """Keeps the words that are not its own: they are Slurm's, which reads them its own way."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        own: list[str] = []
        theirs: list[str] = []
        words = list(args or [])
        while words:
            word = words.pop(0)
            name = word.split("=", 1)[0]
            if name not in _OWN:
                theirs.append(word)
                continue
            own.append(word)
            if _OWN[name] and "=" not in word and words:
                own.append(words.pop(0))
        found, rest = super().parse_known_args(own, namespace)
        found.words = theirs
        return found, rest


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "explain-request",
        help="say what Slurm will give for these options, before submitting",
        description="Say what Slurm will give for the options of a job, in a sentence and a "
        "picture.",
        epilog=_EXAMPLES,
    )
    parser.__class__ = _Passing
    parser.add_argument(
        "--for",
        dest="command",
        choices=("sbatch", "salloc", "srun"),
        default="sbatch",
        help="the command that the options are for (sbatch)",
    )
    parser.add_argument("--cluster-nodes", type=positive, metavar="N", help="nodes there are")
    parser.add_argument("--node-gpus", type=positive, metavar="N", help="GPUs of one node (8)")
    parser.add_argument("--node-sockets", type=positive, metavar="N", help="sockets (2)")
    parser.add_argument("--node-cores", type=positive, metavar="N", help="cores of one node (64)")
    parser.add_argument(
        "--devices",
        choices=("confined", "open"),
        help="confined: ConstrainDevices=yes in cgroup.conf, programs number GPUs from 0",
    )
    parser.add_argument(
        "--tasks",
        choices=("bound", "free"),
        help="bound: TaskPlugin=task/affinity, every task has cores of its own",
    )
    parser.add_argument(
        "--script",
        metavar="FILE",
        help="take the options of this job script, as sbatch does; those after it come on top",
    )
    parser.add_argument(
        "--site-files",
        metavar="FOLDER",
        help="a site's files, instead of asking the Slurm of this machine",
    )
    parser.add_argument("--slurm-version", metavar="V", help="of this Slurm: 22.05 or newer")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    from podwright.slurm.gpus import requests
    from podwright.slurm.site.releases import NEWEST, parse_version

    request = _request(arguments)
    if not request.given:
        raise InvalidRequest(
            "no option of Slurm to explain", would_work="For example --gpus-per-node=4 --nodes=2"
        )
    site, version = _site(arguments)
    if arguments.slurm_version:
        version = parse_version(arguments.slurm_version)
    shape = _with_site(_said(arguments, request), arguments)
    answer = requests.explain(request, site or shape, version or NEWEST)
    if site:
        shape = site.shapes[0]
    if arguments.json:
        import json

        body = requests.as_json(request, answer, shape)
        body["on"] = {
            "nodes": len(site.nodes) if site else shape.nodes,
            "gpus": shape.gpus,
            "found": site is not None,
        }
        print(json.dumps(body, indent=2))
    else:
        _print(request, answer, site, shape)
    if isinstance(answer, requests.SlurmRefusal):
        return 3 if answer.stage == "unknown" else 1
    return 0


def _print(request: Any, answer: Any, site: Any, shape: Any) -> None:
    from podwright.slurm.gpus import requests

    print(requests.sentence(request, answer, shape))
    if isinstance(answer, requests.SlurmRefusal):
        if answer.would_work:
            print(f"What would work: {answer.would_work}.")
    else:
        if answer.total_gpus or site:
            print()
            print(requests.picture(answer, shape))
        for note in answer.notes:
            print(f"Note: {note}.")
    if site:
        down = f", {len(site.down)} of them down" if site.down else ""
        print(f"On the {len(site.nodes)} nodes of this site{down}, the others taken as idle.")
        return
    print(
        f"On {shape.nodes} idle nodes as assumed (say --node-gpus and the like): "
        f"{shape.gpus} GPUs, {shape.sockets} sockets, {shape.cores} cores each."
    )


def _request(arguments: argparse.Namespace) -> Any:
    """The options of the script, where one is named, and those of the command line over them."""
    from pathlib import Path

    from podwright.slurm.gpus import requests

    given, rest_of_line = requests.parse_options(arguments.words, arguments.command)
    given += requests.other_parts(rest_of_line)
    if not arguments.script:
        return requests.read_request(given, arguments.command)
    from podwright.slurm.gpus import lint

    try:
        text = Path(arguments.script).read_text(errors="replace")
    except OSError as error:
        raise InvalidRequest(f"{arguments.script}: {error.strerror or error}") from error
    script = lint.read_script(text)
    for problem in (*script.problems, *script.unknown):
        raise InvalidRequest(f"{arguments.script}:{problem.line}: {problem.reason}")
    if script.parts > 1:
        raise InvalidRequest(f"{arguments.script}: parts of a heterogeneous job are not modelled")
    before = [one for _, one in script.directives]
    said = {one.name for one in given}
    rest = [one for one in before if one.name not in said]
    return requests.read_request(rest + given, arguments.command)


def _site(arguments: argparse.Namespace) -> Any:
    """(site, version) of the files or of this machine's Slurm; None for what is not known.

    Raises Unavailable where a Slurm is there and does not say all.
    """
    from pathlib import Path

    from podwright.slurm.gpus import requests
    from podwright.slurm.site.ask import has_controller
    from podwright.slurm.site.releases import read_version

    texts: Any
    if arguments.site_files:
        texts = requests.bundle(Path(arguments.site_files))
    elif any(
        (
            arguments.cluster_nodes,
            arguments.node_gpus,
            arguments.node_sockets,
            arguments.node_cores,
        )
    ):
        return None, None
    else:
        texts = requests.live()
        if not (texts and texts.nodes and texts.partitions) and has_controller():
            raise Unavailable(
                "Slurm's controller did not answer, so what it would give is not known",
                would_work="Try again, hand over --site-files, or describe nodes: --node-gpus 8",
            )
    if texts is None:
        return None, None
    site = _with_tasks(requests.read_site(texts), arguments)
    return (site if site.nodes else None), read_version(texts.config)


def _with_tasks(site: Any, arguments: argparse.Namespace) -> Any:
    from dataclasses import replace

    return replace(site, shapes=tuple(_with_site(shape, arguments) for shape in site.shapes))


def _said(arguments: argparse.Namespace, request: Any) -> Any:
    """The nodes that the options say, with common ones where they are silent."""
    from podwright.slurm.gpus.requests import NodeHardware

    sockets = arguments.node_sockets or 2
    return NodeHardware(
        nodes=arguments.cluster_nodes or max(64, request.max_nodes or 0),
        sockets=sockets,
        cores_per_socket=max(1, (arguments.node_cores or 64) // sockets),
        gpus=arguments.node_gpus or 8,
    )


def _with_site(shape: Any, arguments: argparse.Namespace) -> Any:
    """The shape with what --devices and --tasks say of the site."""
    from dataclasses import replace

    if arguments.devices:
        shape = replace(shape, confined=arguments.devices == "confined")
    if arguments.tasks:
        shape = replace(shape, affinity=arguments.tasks == "bound")
    return shape
