"""`podwright slurm template`: job scripts that run, fitted to the site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright import plugins
from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._arguments import positive
from podwright.cli.shared._verb import Verb

if TYPE_CHECKING:
    from podwright.gpu.templates import Fit, TemplateOptions

#: The names in `podwright.gpu.templates`, which is imported only when a template is printed.
NAMES = (
    *("torchrun", "accelerate", "deepspeed", "lightning", "finetune", "rl", "ray", "mpi"),
    *("sweep", "pipeline", "inference", "vllm", "container"),
)


_ALL_NAMES = (*NAMES, *plugins.names(plugins.TEMPLATES))


class ScriptOptions(opt.OptionTable):
    """The options of `template`."""

    name = opt.optional_argument(", ".join(_ALL_NAMES), "NAME", None, _ALL_NAMES)
    list = opt.flag("list the templates and their purpose")
    inventory = opt.optional("the site's nodes, adapters and switches (TOML or JSON)", "FILE")
    slurm_version = opt.optional("of another Slurm than this machine's", "V")
    nodes = opt.value("nodes (2)", "N", positive, 2)
    partition = opt.text("Slurm's partition", "NAME")
    gpu_type = opt.text("GPUs of this type", "TYPE")
    gpu_memory = opt.value("GPUs of at least that much", "GIB", positive, 0)
    image = opt.optional("image of the container", "IMAGE")
    json = opt.JSON


def _run(arguments: ScriptOptions) -> int:
    from podwright.errors import InvalidRequest
    from podwright.gpu import templates

    if arguments.list:
        _list(arguments.json)
        return 0
    if not arguments.name:
        raise InvalidRequest("no template is named", would_work=f"one of {', '.join(NAMES)}")
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


def _fit(arguments: ScriptOptions, options: TemplateOptions) -> Fit:
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


VERBS = (
    Verb(
        "template",
        ScriptOptions,
        _run,
        help="print a commented job script that fits this site",
        description="Prints a commented job script, fitted to the nodes of an inventory, or of "
        "this site's Slurm. Programs are its arguments: sbatch torchrun.sh train.py --epochs 3.",
    ),
)
