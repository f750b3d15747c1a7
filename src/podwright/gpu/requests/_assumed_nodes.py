"""Assumed equal nodes, as the files of a site with which a twin can be started."""

from __future__ import annotations

from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._request_details import read_details
from podwright.gpu.requests._values import NodeHardware, SlurmCluster, SlurmPartition
from podwright.slurm.twin import SiteFiles


def assumed_site(request: SlurmRequest, shape: NodeHardware) -> tuple[SlurmCluster, SiteFiles]:
    """`shape.nodes` equal nodes, in the partitions and with the type of GPU that the request
    names, as counts and a twin take them. The GPUs are beside the sockets evenly."""
    kind = request.kind()
    partitions = read_details(request.given).partitions or ("main",)
    names = [f"n{number + 1}" for number in range(shape.nodes)]
    gres = f"gpu:{kind}:{shape.gpus}" if kind else f"gpu:{shape.gpus}"
    lines = [
        "ClusterName=assumed",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        f"TaskPlugin=task/{'affinity' if shape.affinity else 'none'}",
        f"NodeName=n[1-{shape.nodes}] Sockets={shape.sockets} "
        f"CoresPerSocket={shape.cores_per_socket} ThreadsPerCore={shape.threads} Gres={gres}",
    ]
    for number, partition in enumerate(partitions):
        default = "NO" if number else "YES"
        lines.append(f"PartitionName={partition} Nodes=ALL Default={default} State=UP")
    site = SlurmCluster(
        (shape,),
        tuple((name, 0) for name in names),
        tuple(SlurmPartition(name, frozenset(names)) for name in partitions),
        partitions[0],
    )
    return site, SiteFiles(slurm_conf="\n".join(lines) + "\n", gres_conf=_gres_conf(shape, kind))


def _gres_conf(shape: NodeHardware, kind: str) -> str:
    """A line for the GPUs beside each socket; the first sockets have one more where it must be."""
    lines, first = [], 0
    each, more = divmod(shape.gpus, shape.sockets)
    for socket in range(shape.sockets):
        count = each + (socket < more)
        if not count:
            continue
        files = f"/dev/nvidia[{first}-{first + count - 1}]" if count > 1 else f"/dev/nvidia{first}"
        core = socket * shape.cores_per_socket
        typed = f"Type={kind} " if kind else ""
        last = core + shape.cores_per_socket - 1
        lines.append(f"Name=gpu {typed}File={files} Cores={core}-{last}")
        first += count
    return "\n".join(lines) + "\n"
