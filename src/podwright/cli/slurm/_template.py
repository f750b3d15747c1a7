"""`podwright slurm template`: job scripts that run, fitted to the site."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from podwright import plugins
from podwright.cli.shared._arguments import positive

if TYPE_CHECKING:
    from podwright.gpu.templates import Fit, TemplateOptions

#: The names in `podwright.gpu.templates`, which is imported only when a template is printed.
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
    parser.add_argument("--list", action="store_true", help="list the templates and their purpose")
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
    parser.add_argument("--image", metavar="IMAGE", help="image of the container")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run_slurm=_run)


def _run(arguments: argparse.Namespace) -> int:
    from podwright.errors import InvalidRequest
    from podwright.gpu import templates

    if arguments.list:
        _list(arguments.json)
        return 0
    if not arguments.name:
        raise InvalidRequest("no template is named", would_work=f"choose one of {', '.join(NAMES)}")
    for word in (arguments.partition, arguments.gpu_type, arguments.image or ""):
        if any(letter in word for letter in " \t\n\"'`$\\;|&<>()"):
            raise InvalidRequest(f"{word!r} cannot stand in a job script")
    options = templates.TemplateOptions(
        nodes=arguments.nodes,
        partition=arguments.partition,
        type=arguments.gpu_type,
        memory=arguments.gpu_memory << 30,
    )
    if arguments.image:
        options = options._replace(image=arguments.image)
    text = templates.render(arguments.name, _fit(arguments, options), options)
    if arguments.json:
        import json

        print(json.dumps({"name": arguments.name, "script": text}))
    else:
        print(text, end="")
    return 0


def _list(as_json: bool) -> None:
    from podwright.gpu.templates import all_templates

    if as_json:
        import json

        print(
            json.dumps([{"name": n, "for": text} for n, text in all_templates().items()], indent=2)
        )
        return
    from podwright.cli.shared._tables import table

    print(table(("Name", "For"), all_templates().items()))


def _fit(arguments: argparse.Namespace, options: TemplateOptions) -> Fit:
    from podwright.gpu import requests, templates
    from podwright.slurm import reader
    from podwright.slurm.site.ask import ask_slurm
    from podwright.slurm.site.releases import parse_version

    config = reader.SlurmConfig(ask_slurm(list(reader.SHOW_CONFIG)))
    named = arguments.slurm_version
    version = parse_version(named) if named else (config.version if config else None)
    if config and (note := reader.release_note(config.version)):
        import sys

        print(f"Note: {note}.", file=sys.stderr)
    if arguments.inventory:
        from podwright.gpu.configure import read_inventory

        return templates.of_inventory(read_inventory(arguments.inventory), options, version)
    if not config:
        return templates.Fit(version=version)
    nodes = reader.read_nodes(ask_slurm(list(reader.SHOW_NODES)))
    if options.type and nodes:
        nodes = templates.nodes_with(options.type, nodes)
    shape = requests.read_shape(nodes, config, arguments.partition)
    switches = reader.read_switches(ask_slurm(list(reader.SHOW_TOPOLOGY)))
    if arguments.partition:
        nodes = [node for node in nodes if arguments.partition in node.partitions]
    return templates.of_slurm(shape, config, nodes, switches)._replace(version=version)
