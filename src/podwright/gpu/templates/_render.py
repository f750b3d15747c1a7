"""Renders a template: plain text with a few words between @s, and lines that only some sites
need."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.templates._template_values import Fit, TemplateOptions
from podwright.ground import plugins
from podwright.slurm.site.releases import OLDEST_RELEASE, release_of

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


_ONE_NODE_TEMPLATES = ("sweep", "inference", "pipeline", "vllm")


def render(template_name: str, fit: Fit, options: TemplateOptions) -> str:
    """The script. Raises InvalidRequest for options that the site cannot satisfy."""
    added_template = (
        None
        if template_name in TEMPLATES
        else plugins.load(plugins.TEMPLATES, template_name, Template)
    )
    node_count = (
        1
        if template_name in _ONE_NODE_TEMPLATES or (added_template and added_template.one_node)
        else options.nodes
    )
    if fit.nodes and node_count > fit.nodes:
        raise InvalidRequest(
            f"there are {fit.nodes} such nodes",
            operation=f"--nodes={node_count}",
            would_work=f"--nodes={fit.nodes} or fewer",
        )
    replacements = {
        "RAY": _template_text("parts/ray.sh"),
        "TORCHRUN": _template_text("parts/torchrun.sh"),
        "EXIT": _template_text("parts/exit.sh"),
        "HEAD": _sbatch_lines(fit, options, node_count),
        "FABRIC": _fabric_lines(fit) if node_count > 1 else "",
        "MEMORY": _memory_check_lines(options, node_count),
        "NODES": str(node_count),
        "GPUS": str(fit.gpus),
        "TYPE": f"{options.type}:" if options.type else "",
        "CPUS": str(fit.cores),
        "CPUS_PER_GPU": str(max(fit.cores // fit.gpus, 1)),
        "PARTITION": f"--partition={options.partition} " if options.partition else "",
        "IMAGE": options.image,
    }
    script = added_template.text if added_template else _template_text(f"{template_name}.sh")
    for placeholder, replacement in replacements.items():
        if not replacement:
            script = script.replace(f"@{placeholder}@\n", "")
        script = script.replace(f"@{placeholder}@", replacement.rstrip("\n"))
    return script


def all_templates() -> dict[str, str]:
    """The purpose of each template, by name: ours, and those that other packages add."""
    added_templates = plugins.load_all(plugins.TEMPLATES, Template)
    return TEMPLATES | {name: template.says for name, template in added_templates.items()}


def _template_text(file_name: str) -> str:
    return files("podwright.gpu.templates").joinpath(file_name).read_text()


def _sbatch_lines(fit: Fit, options: TemplateOptions, node_count: int) -> str:
    lines = []
    if options.partition:
        lines.append(f"#SBATCH --partition={options.partition}")
    if options.memory:
        lines += _constraint(fit, options)
    if node_count > 1:
        lines += _closeness_options(fit, node_count)
    return "\n".join(lines)


def _closeness_options(fit: Fit, node_count: int) -> list[str]:
    """Return the options that keep a job's nodes close together.

    They request as few switches as hold the job, or parts that fit into a block.
    """
    release = release_of(fit.slurm_version or OLDEST_RELEASE)
    if fit.topology == "block" and release.has_segments:
        largest_segment = (
            node_count if release.has_large_segments else min(node_count, fit.base or node_count)
        )
        segment_nodes = next(
            part_nodes
            for part_nodes in range(largest_segment, 0, -1)
            if node_count % part_nodes == 0 and _blocks_hold(fit, node_count, part_nodes)
        )
        if segment_nodes == 1:
            return []
        arrangement = (
            "in one block"
            if segment_nodes == node_count
            else f"{segment_nodes} and {segment_nodes} in a block"
        )
        return [
            f"# Its nodes lie {arrangement}, or it waits.",
            f"#SBATCH --segment={segment_nodes}",
        ]
    if fit.topology != "tree":
        return []
    switch_count, reached_nodes = 0, 0
    while reached_nodes < node_count and switch_count < len(fit.groups):
        reached_nodes += fit.groups[switch_count]
        switch_count += 1
    switch_count = max(switch_count, 1)
    switches_text = (
        "one switch" if switch_count == 1 else f"{switch_count} switches, as few as hold it"
    )
    return [
        f"# Under {switches_text}; after an hour of waiting, wherever there is room.",
        f"#SBATCH --switches={switch_count}@01:00:00",
    ]


def _blocks_hold(fit: Fit, node_count: int, part_nodes: int) -> bool:
    """Return whether the blocks together hold that many nodes in parts of this size."""
    part_count = sum(group_nodes // part_nodes for group_nodes in fit.groups)
    return part_nodes == 1 or not fit.groups or part_count * part_nodes >= node_count


def _constraint(fit: Fit, options: TemplateOptions) -> list[str]:
    """Return the constraint for GPU memory.

    Slurm does not count GPU memory, so a feature stands for it, or a type of GPU that has it.
    """
    sufficient_sizes = [size for size in fit.sizes if size >= options.memory]
    least_gib = options.memory >> 30
    if options.type and not sufficient_sizes:
        return []  # the type determines it; the job checks it
    if not sufficient_sizes:
        sizes_text = ", ".join(f"{size >> 30} GiB" for size in fit.sizes) or "none"
        raise InvalidRequest(
            f"the sizes that nodes name in a feature are: {sizes_text}",
            operation=f"--gpu-memory={least_gib}",
            would_work="--gpu-type names a kind of GPU instead; podwright slurm configure --gpus "
            "writes such features",
        )
    feature_alternatives = "|".join(f"gpumem{size >> 30}g" for size in sufficient_sizes)
    return [
        f"# Slurm counts GPUs and not their memory. A feature stands for at least {least_gib} GiB:",
        f'#SBATCH --constraint="{feature_alternatives}"',
    ]


def _memory_check_lines(options: TemplateOptions, node_count: int) -> str:
    if not options.memory:
        return ""
    # nvidia-smi counts MiB, of which a part is the driver's own.
    least_mib = (options.memory >> 20) * 9 // 10
    # The next srun may come before slurmctld knows that this one has ended. If that step then needs
    # all CPUs, Slurm 22.05 refuses it for ever: Invalid generic resource (gres).
    srun_command = (
        f"srun --overlap --nodes={node_count} --ntasks={node_count} --ntasks-per-node=1 "
        "--cpus-per-task=1 "
    )
    return f"""\
# A feature is only a word in slurm.conf: check that the GPUs have the requested memory.
{srun_command if node_count > 1 else ""}bash -c '
    for size in $(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits); do
        [ "$size" -ge {least_mib} ] && continue
        echo "$(hostname): a GPU of $size MiB, and {options.memory >> 30} GiB were asked for" >&2
        exit 1
    done'
"""


def _fabric_lines(fit: Fit) -> str:
    if not fit.adapters and not fit.interface:
        return (
            "# NCCL and Gloo look for the fabric themselves. `podwright inventory` on a node names "
            "its\n# adapters, and a template made with --inventory sets them."
        )
    lines = []
    if fit.adapters:
        adapter_names = ",".join(fit.adapters)
        adapter_ports = ",".join(f"{name}:1" for name in fit.adapters)
        lines += [
            "# The adapters of the training network and no others: = takes the names as they are.",
            f"export NCCL_IB_HCA=={adapter_names}",
            "# GPUs and adapters exchange data without the host's memory, however far apart.",
            "export NCCL_NET_GDR_LEVEL=SYS",
            f"export UCX_NET_DEVICES={adapter_ports}",
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
