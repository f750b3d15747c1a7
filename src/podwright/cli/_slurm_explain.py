"""`podwright slurm explain-request`: what Slurm will give, before anything is submitted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from podwright.cli._arguments import Parser, positive

_EXAMPLES = """\
all options of sbatch, salloc and srun may follow; those that count are read.

examples:
  podwright slurm explain-request --gres=gpu:4 --nodes=2 --ntasks-per-node=2
  podwright slurm explain-request --gpus=8 --ntasks=8 --gpu-bind=single:1
  podwright slurm explain-request --for srun --gpus-per-task=1 -n4 --node-gpus 8

the nodes are those of this site's Slurm, where there is one; else, or with --node-… options,
equal idle nodes as said there. For sbatch and salloc the tasks are those of a plain
`srun program` inside the job."""

_OWN = {
    "--for": True,
    "--cluster-nodes": True,
    "--node-gpus": True,
    "--node-sockets": True,
    "--node-cores": True,
    "--devices": True,
    "--tasks": True,
    "--slurm-version": True,
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
    parser.add_argument("--slurm-version", metavar="V", help="of this Slurm: 22.05 or newer")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    from podwright.slurm import requests

    request = requests.parse_request(arguments.words, arguments.command)
    if not request.given:
        raise requests.invalid(
            "no option of Slurm to explain", would_work="For example --gpus-per-node=4 --nodes=2"
        )
    said = (arguments.cluster_nodes, arguments.node_gpus, arguments.node_sockets)
    known = (
        None
        if any((*said, arguments.node_cores))
        else requests.site(partition=request.other.get("partition", ""))
    )
    shape, version = known or (None, None)
    if arguments.slurm_version:
        version = requests.parse_version(arguments.slurm_version)
    found = shape is not None
    shape = _with_site(shape or _said(arguments, request), arguments)
    answer = requests.explain(request, shape, version or requests.NEWEST)
    if arguments.json:
        import json

        body = requests.as_json(request, answer, shape)
        body["on"] = {"nodes": shape.nodes, "gpus": shape.gpus, "found": found}
        print(json.dumps(body, indent=2))
    else:
        where = "of this site" if found else "as assumed (say --node-gpus and the like)"
        print(requests.sentence(request, answer, shape))
        if isinstance(answer, requests.Refusal):
            if answer.would_work:
                print(f"What would work: {answer.would_work}.")
        else:
            print()
            print(requests.picture(answer, shape))
            for note in answer.notes:
                print(f"Note: {note}.")
        print(
            f"On {shape.nodes} idle nodes {where}: {shape.gpus} GPUs, {shape.sockets} sockets, "
            f"{shape.cores} cores each."
        )
    return 1 if isinstance(answer, requests.Refusal) else 0


def _said(arguments: argparse.Namespace, request: Any) -> Any:
    """The nodes that the options say, with common ones where they are silent."""
    from podwright.slurm.requests import Shape

    sockets = arguments.node_sockets or 2
    return Shape(
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
