"""Renders a template: plain text with a few words between @s, and lines that only some sites
need."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from podwright import plugins
from podwright.errors import InvalidRequest
from podwright.gpu.templates._fit import Fit, TemplateOptions
from podwright.slurm.site.releases import OLDEST, release_of

#: The purpose of each template, by name.
TEMPLATES = {
    "torchrun": "training over several nodes by torchrun, ready for FSDP",
    "accelerate": "training over several nodes by Hugging Face Accelerate",
    "deepspeed": "training by DeepSpeed, a task for each GPU",
    "lightning": "training by Lightning, a task for each GPU",
    "finetune": "distributed fine-tuning that goes on after its time limit",
    "rl": "RL post-training over Ray",
    "ray": "a Ray cluster for one program",
    "mpi": "an MPI program, a rank for each GPU, over PMIx",
    "sweep": "an array of runs, one for each line of a file",
    "pipeline": "jobs that wait for each other",
    "inference": "offline inference in shards that are done once",
    "vllm": "offline inference by vLLM, a node's GPUs for each shard",
    "container": "training in a container through Pyxis",
}


class Template(NamedTuple):
    """A template that another package adds. says: its purpose. one_node: whether the job uses one
    node.

    text: with words between @s, like the templates beside this file.
    """

    says: str
    text: str
    one_node: bool = False


_ON_ONE = ("sweep", "inference", "pipeline", "vllm")


def render(name: str, fit: Fit, options: TemplateOptions) -> str:
    """The script. Raises InvalidRequest for options that the site cannot satisfy."""
    added = None if name in TEMPLATES else plugins.load(plugins.TEMPLATES, name, Template)
    nodes = 1 if name in _ON_ONE or (added and added.one_node) else options.nodes
    if fit.nodes and nodes > fit.nodes:
        raise InvalidRequest(
            f"there are {fit.nodes} such nodes",
            operation=f"--nodes={nodes}",
            would_work=f"--nodes={fit.nodes} or fewer",
        )
    words = {
        "RAY": _text("parts/ray.sh"),
        "TORCHRUN": _text("parts/torchrun.sh"),
        "EXIT": _text("parts/exit.sh"),
        "HEAD": _head(fit, options, nodes),
        "FABRIC": _fabric(fit) if nodes > 1 else "",
        "MEMORY": _memory(options, nodes),
        "NODES": str(nodes),
        "GPUS": str(fit.gpus),
        "TYPE": f"{options.type}:" if options.type else "",
        "CPUS": str(fit.cores),
        "CPUS_PER_GPU": str(max(fit.cores // fit.gpus, 1)),
        "PARTITION": f"--partition={options.partition} " if options.partition else "",
        "IMAGE": options.image,
    }
    text = added.text if added else _text(f"{name}.sh")
    for word, value in words.items():
        if not value:
            text = text.replace(f"@{word}@\n", "")
        text = text.replace(f"@{word}@", value.rstrip("\n"))
    return text


def all_templates() -> dict[str, str]:
    """The purpose of each template, by name: ours, and those that other packages add."""
    added = plugins.load_all(plugins.TEMPLATES, Template)
    return TEMPLATES | {name: template.says for name, template in added.items()}


def _text(name: str) -> str:
    return files("podwright.gpu.templates").joinpath(name).read_text()


def _head(fit: Fit, options: TemplateOptions, nodes: int) -> str:
    lines = []
    if options.partition:
        lines.append(f"#SBATCH --partition={options.partition}")
    if options.memory:
        lines += _constraint(fit, options)
    if nodes > 1:
        lines += _together(fit, nodes)
    return "\n".join(lines)


def _together(fit: Fit, nodes: int) -> list[str]:
    """Return the options that keep a job's nodes close together.

    They request as few switches as hold the job, or parts that fit into a block.
    """
    release = release_of(fit.slurm_version or OLDEST)
    if fit.topology == "block" and release.has_segments:
        largest_segment = nodes if release.has_large_segments else min(nodes, fit.base or nodes)
        part = next(
            size
            for size in range(largest_segment, 0, -1)
            if nodes % size == 0 and _hold(fit, nodes, size)
        )
        if part == 1:
            return []
        arrangement = "in one block" if part == nodes else f"{part} and {part} in a block"
        return [f"# Its nodes lie {arrangement}, or it waits.", f"#SBATCH --segment={part}"]
    if fit.topology != "tree":
        return []
    least, reached = 0, 0
    while reached < nodes and least < len(fit.groups):
        reached += fit.groups[least]
        least += 1
    least = max(least, 1)
    where = "one switch" if least == 1 else f"{least} switches, as few as hold it"
    return [
        f"# Under {where}; after an hour of waiting, wherever there is room.",
        f"#SBATCH --switches={least}@01:00:00",
    ]


def _hold(fit: Fit, nodes: int, size: int) -> bool:
    """Return whether the blocks together hold that many nodes in parts of this size."""
    parts = sum(group // size for group in fit.groups)
    return size == 1 or not fit.groups or parts * size >= nodes


def _constraint(fit: Fit, options: TemplateOptions) -> list[str]:
    """Return the constraint for GPU memory.

    Slurm does not count GPU memory, so a feature stands for it, or a type of GPU that has it.
    """
    enough = [size for size in fit.sizes if size >= options.memory]
    least = options.memory >> 30
    if options.type and not enough:
        return []  # the type determines it; the job checks it
    if not enough:
        sizes = ", ".join(f"{size >> 30} GiB" for size in fit.sizes) or "none"
        raise InvalidRequest(
            f"the sizes that nodes name in a feature are: {sizes}",
            operation=f"--gpu-memory={least}",
            would_work="--gpu-type names a kind of GPU instead; podwright slurm configure --gpus "
            "writes such features",
        )
    either = "|".join(f"gpumem{size >> 30}g" for size in enough)
    return [
        f"# Slurm counts GPUs and not their memory. A feature stands for at least {least} GiB:",
        f'#SBATCH --constraint="{either}"',
    ]


def _memory(options: TemplateOptions, nodes: int) -> str:
    if not options.memory:
        return ""
    # nvidia-smi counts MiB, of which a part is the driver's own.
    least = (options.memory >> 20) * 9 // 10
    # The next srun may come before slurmctld knows that this one has ended. If that step then needs
    # all CPUs, Slurm 22.05 refuses it for ever: Invalid generic resource (gres).
    srun_command = (
        f"srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --cpus-per-task=1 "
    )
    return f"""\
# A feature is only a word in slurm.conf: check that the GPUs have the requested memory.
{srun_command if nodes > 1 else ""}bash -c '
    for size in $(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits); do
        [ "$size" -ge {least} ] && continue
        echo "$(hostname): a GPU of $size MiB, and {options.memory >> 30} GiB were asked for" >&2
        exit 1
    done'
"""


def _fabric(fit: Fit) -> str:
    if not fit.adapters and not fit.interface:
        return (
            "# NCCL and Gloo look for the fabric themselves. `podwright inventory` on a node names "
            "its\n# adapters, and a template made with --inventory sets them."
        )
    lines = []
    if fit.adapters:
        names = ",".join(fit.adapters)
        ports = ",".join(f"{name}:1" for name in fit.adapters)
        lines += [
            "# The adapters of the training network and no others: = takes the names as they are.",
            f"export NCCL_IB_HCA=={names}",
            "# GPUs and adapters exchange data without the host's memory, however far apart.",
            "export NCCL_NET_GDR_LEVEL=SYS",
            f"export UCX_NET_DEVICES={ports}",
        ]
    if fit.interface:
        lines += [
            "# Where ranks find each other; Gloo sends its data there as well.",
            f"export NCCL_SOCKET_IFNAME={fit.interface}",
            f"export GLOO_SOCKET_IFNAME={fit.interface}",
        ]
    lines += [
        "# podwright slurm check-fabric reads what this writes: was it RDMA, and from the GPUs?",
        "export NCCL_DEBUG=${NCCL_DEBUG:-INFO} NCCL_DEBUG_SUBSYS=INIT,NET",
    ]
    return "\n".join(lines)
