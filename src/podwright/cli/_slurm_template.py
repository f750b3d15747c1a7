"""`podwright slurm template`: job scripts that run, fitted to the site."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from podwright import plugins
from podwright.cli._arguments import positive

if TYPE_CHECKING:
    from podwright.slurm.gpus.templates import Fit, TemplateWishes

#: As `podwright.slurm.gpus.templates` has them, which is imported only where one is printed.
NAMES = (
    *("torchrun", "accelerate", "deepspeed", "lightning", "finetune", "rl", "ray", "mpi"),
    *("sweep", "pipeline", "inference", "vllm", "container"),
)


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    names = (*NAMES, *plugins.names(plugins.TEMPLATES))
    parser = verbs.add_parser(
        "template",
        help="print a commented job script that fits this site",
        description="Prints a commented job script, fitted to the nodes of an inventory, or of "
        "this site's Slurm. Programs are its arguments: sbatch torchrun.sh train.py --epochs 3.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", choices=names, help=", ".join(names))
    parser.add_argument("--list", action="store_true", help="say what each is for")
    parser.add_argument(
        "--inventory", metavar="FILE", help="the site's nodes, adapters and switches (TOML or JSON)"
    )
    parser.add_argument("--slurm-version", metavar="V", help="of another Slurm than this machine's")
    parser.add_argument("--nodes", type=positive, metavar="N", default=2, help="nodes (2)")
    parser.add_argument("--partition", metavar="NAME", default="", help="Slurm's partition")
    parser.add_argument("--gpu-type", metavar="TYPE", default="", help="GPUs of this type")
    parser.add_argument(
        "--gpu-memory", type=positive, metavar="GIB", default=0, help="GPUs of at least that much"
    )
    parser.add_argument("--image", metavar="IMAGE", help="of the container")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    from podwright.errors import InvalidRequest
    from podwright.slurm.gpus import templates

    if arguments.list:
        _list(arguments.json)
        return 0
    if not arguments.name:
        raise InvalidRequest("no template is named", would_work=f"one of {', '.join(NAMES)}")
    for word in (arguments.partition, arguments.gpu_type, arguments.image or ""):
        if any(letter in word for letter in " \t\n\"'`$\\;|&<>()"):
            raise InvalidRequest(f"{word!r} cannot stand in a job script")
    wishes = templates.TemplateWishes(
        nodes=arguments.nodes,
        partition=arguments.partition,
        type=arguments.gpu_type,
        memory=arguments.gpu_memory << 30,
    )
    if arguments.image:
        wishes = wishes._replace(image=arguments.image)
    text = templates.render(arguments.name, _fit(arguments, wishes), wishes)
    if arguments.json:
        import json

        print(json.dumps({"name": arguments.name, "script": text}))
    else:
        print(text, end="")
    return 0


def _list(as_json: bool) -> None:
    from podwright.slurm.gpus.templates import all_templates

    if as_json:
        import json

        print(
            json.dumps([{"name": n, "for": text} for n, text in all_templates().items()], indent=2)
        )
        return
    from podwright.cli._tables import table

    print(table(("Name", "For"), all_templates().items()))


def _fit(arguments: argparse.Namespace, wishes: TemplateWishes) -> Fit:
    from podwright.slurm.gpus import requests, templates
    from podwright.slurm.site.ask import ask_slurm
    from podwright.slurm.site.releases import parse_version, read_version

    config = ask_slurm(["scontrol", "show", "config"])
    said = arguments.slurm_version
    version = parse_version(said) if said else read_version(config)
    if arguments.inventory:
        from podwright.slurm.gpus.configure import read_inventory

        return templates.of_inventory(read_inventory(arguments.inventory), wishes, version)
    nodes = ask_slurm(["scontrol", "--oneliner", "show", "node"]) if config else ""
    if wishes.type and nodes:
        nodes = "\n".join(templates.nodes_with(wishes.type, nodes))
    shape = requests.read_shape(nodes, config, arguments.partition) if nodes else None
    features = ask_slurm(["sinfo", "-h", "-o", "%f"]) if config else ""
    network = ask_slurm(["scontrol", "show", "topology"]) if config else ""
    named = [f"--partition={arguments.partition}"] if arguments.partition else []
    gres = ask_slurm(["sinfo", "-h", "-N", "-o", "%N %G", *named]) if network else ""
    return templates.of_slurm(shape, config, features, network, gres)._replace(version=version)
