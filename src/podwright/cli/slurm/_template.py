"""`podwright slurm template`: job scripts that run, fitted to the site."""

from __future__ import annotations

import sys

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt
from podwright.ground import plugins
from podwright.ground.option_rows import positive

#: The names in `podwright.gpu.templates`, which is imported only when a template is printed.
NAMES = (
    *("torchrun", "accelerate", "deepspeed", "lightning", "finetune", "rl", "ray", "mpi"),
    *("sweep", "pipeline", "inference", "vllm", "container"),
)


_ALL_NAMES = (*NAMES, *plugins.names(plugins.TEMPLATES))


class _ScriptOptions(opt.OptionTable):
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


def _run(arguments: _ScriptOptions) -> int:
    from podwright.errors import InvalidRequest
    from podwright.gpu import templates
    from podwright.ground.tables import table

    if arguments.list:
        known = templates.all_templates()
        rows = [{"name": name, "for": purpose} for name, purpose in known.items()]
        show_result(arguments.json, rows, lambda: table(("Name", "For"), known.items()))
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
    fit = templates.fit_site(
        options,
        inventory_path=arguments.inventory,
        slurm_version=arguments.slurm_version,
        add_note=lambda text: print(f"Note: {text}.", file=sys.stderr),
    )
    text = templates.render(arguments.name, fit, options)
    if arguments.json:
        import json

        print(json.dumps({"name": arguments.name, "script": text}))
    else:
        print(text, end="")
    return 0


VERBS = (
    Verb(
        "template",
        _ScriptOptions,
        _run,
        help="print a commented job script that fits this site",
        description="Prints a commented job script, fitted to the nodes of an inventory, or of "
        "this site's Slurm. Programs are its arguments: sbatch torchrun.sh train.py --epochs 3.",
    ),
)
