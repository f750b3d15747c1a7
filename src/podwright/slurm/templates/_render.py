"""Fills a template: plain text with a few words between @s, and lines that a site needs or not."""

from __future__ import annotations

from importlib.resources import files

from podwright.slurm.templates._fit import Fit, Wishes
from podwright.wire import InvalidRequest

#: By name, what each is for.
TEMPLATES = {
    "torchrun": "training over several nodes by torchrun, ready for FSDP",
    "finetune": "distributed fine-tuning that goes on after its time limit",
    "rl": "RL post-training over Ray",
    "ray": "a Ray cluster for one program",
    "mpi": "an MPI program, a rank for each GPU, over PMIx",
    "sweep": "an array of runs, one for each line of a file",
    "pipeline": "jobs that wait for each other",
    "inference": "offline inference in shards that are done once",
    "container": "training in a container through Pyxis",
}
_ON_ONE = ("sweep", "inference", "pipeline")


def render(name: str, fit: Fit, wishes: Wishes) -> str:
    """The script. Raises InvalidRequest for a wish that the site cannot fulfil."""
    nodes = 1 if name in _ON_ONE else wishes.nodes
    words = {
        "RAY": _text("parts/ray.sh"),
        "HEAD": _head(fit, wishes, nodes),
        "FABRIC": _fabric(fit) if nodes > 1 else "",
        "MEMORY": _memory(wishes, nodes),
        "NODES": str(nodes),
        "GPUS": str(fit.gpus),
        "TYPE": f"{wishes.type}:" if wishes.type else "",
        "CPUS": str(fit.cores),
        "CPUS_PER_GPU": str(max(fit.cores // fit.gpus, 1)),
        "PARTITION": f"--partition={wishes.partition} " if wishes.partition else "",
        "IMAGE": wishes.image,
    }
    text = _text(f"{name}.sh")
    for word, value in words.items():
        if not value:
            text = text.replace(f"@{word}@\n", "")
        text = text.replace(f"@{word}@", value.rstrip("\n"))
    return text


def _text(name: str) -> str:
    return files("podwright.slurm.templates").joinpath(name).read_text()


def _head(fit: Fit, wishes: Wishes, nodes: int) -> str:
    lines = []
    if wishes.partition:
        lines.append(f"#SBATCH --partition={wishes.partition}")
    if wishes.memory:
        lines += _constraint(fit, wishes)
    if nodes > 1 and fit.topology == "block" and (fit.version or (0, 0)) >= (24, 5):
        lines.append("# In one block, or it waits.")
        lines.append(f"#SBATCH --segment={nodes}")
    elif nodes > 1 and fit.topology:
        lines.append("# Under one switch; after an hour of waiting, wherever there is room.")
        lines.append("#SBATCH --switches=1@01:00:00")
    return "\n".join(lines)


def _constraint(fit: Fit, wishes: Wishes) -> list[str]:
    """Slurm counts no GPU memory: a feature stands for it, or a type that has it."""
    enough = [size for size in fit.sizes if size >= wishes.memory]
    if wishes.type and not enough:
        return []  # the type says it; the job checks it
    if not enough:
        sizes = ", ".join(f"{size} GiB" for size in fit.sizes) or "none"
        raise InvalidRequest(
            f"the sizes that nodes name in a feature are: {sizes}",
            asked=f"--gpu-memory={wishes.memory}",
            would_work="--gpu-type names a kind of GPU instead; podwright slurm configure --gpus "
            "writes such features",
        )
    either = "|".join(f"gpumem{size}g" for size in enough)
    return [
        f"# Slurm counts GPUs and not their memory. A feature stands for at least {wishes.memory} "
        "GiB:",
        f'#SBATCH --constraint="{either}"',
    ]


def _memory(wishes: Wishes, nodes: int) -> str:
    if not wishes.memory:
        return ""
    # nvidia-smi counts MiB, of which a part is the driver's own.
    least = wishes.memory * 1024 * 9 // 10
    over = f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --cpus-per-task=1 "
    return f"""\
# A feature is a word that somebody wrote: look whether the GPUs have what was asked for.
{over if nodes > 1 else ""}bash -c '
    for size in $(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits); do
        [ "$size" -ge {least} ] && continue
        echo "$(hostname): a GPU of $size MiB, and {wishes.memory} GiB were asked for" >&2
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
