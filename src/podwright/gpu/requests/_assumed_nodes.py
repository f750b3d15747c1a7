"""Assumed equal nodes, as the files of a site with which a twin can be started.

Nothing is known of such nodes but their sizes. So options about anything else are left out, and a
size that nobody gave refuses no job: `larger` has the same nodes with plenty of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from podwright.gpu.requests._request import SHARE_NAMES, SlurmRequest, read_request
from podwright.gpu.requests._request_details import read_details
from podwright.gpu.requests._site_answer_types import NodeHardware, SlurmCluster
from podwright.gpu.requests._slurm_options import Given
from podwright.gpu.requests._submitted_options import LeftOut
from podwright.slurm.twin import SiteFiles

#: What nothing is assumed about, and the options that ask for it.
_NOT_ASSUMED = {
    "the memory of nodes": ("mem", "mem-per-cpu", "mem-per-gpu", "mem-bind"),
    "the disks of nodes": ("tmp",),
    "the features of nodes": ("constraint", "prefer"),
    "the names of nodes": ("nodelist", "exclude"),
    "reserved cores": ("core-spec", "thread-spec"),
    "the network": ("switches", "segment", "consolidate-segments", "spread-segments"),
}
_BECAUSE = {
    option: f"nothing is assumed about {thing}"
    for thing, options in _NOT_ASSUMED.items()
    for option in options
}
_LARGE_CORES, _LARGE_GPUS, _LARGE_NODES = 2048, 64, 512


class AssumedRequest(NamedTuple):
    """A request as far as the assumption describes what it asks for.

    problem: why nothing can be said of it on assumed nodes; empty where something can.
    """

    request: SlurmRequest
    left_out: tuple[LeftOut, ...]
    problem: str = ""


def assumed_request(request: SlurmRequest) -> AssumedRequest:
    """Return the request without what the assumption does not describe."""
    kept_options: list[Given] = []
    left_out: list[LeftOut] = []
    for given in request.given:
        if because := _BECAUSE.get(given.name):
            left_out.append(LeftOut(given.name, because))
            continue
        if given.name in ("gres", "tres-per-task"):
            parts = given.value.split(",")
            known = [part for part in parts if _is_described(part)]
            if len(known) < len(parts):
                left_out.append(LeftOut(given.name, "nothing is assumed about other GRES than gpu"))
            if not known:
                continue
            given = given._replace(value=",".join(known))
        kept_options.append(given)
    problem = ""
    if request.shares:
        problem = "assumed nodes have no shares of GPUs"
    elif len({gpus.kind for _, gpus in request.gpu_options if gpus.kind}) > 1:
        problem = "assumed nodes have GPUs of one type"
    kept_request = read_request(kept_options, request.command) if left_out else request
    return AssumedRequest(kept_request, tuple(dict.fromkeys(left_out)), problem)


def _is_described(gres_part: str) -> bool:
    """Whether a part of --gres or --tres-per-task asks for GPUs or CPUs, or for none."""
    name = gres_part.removeprefix("gres:").removeprefix("gres/").split(":")[0].split("=")[0]
    return name.lower() in ("gpu", "cpu", "none", *SHARE_NAMES)


def assumed_site(
    request: SlurmRequest, node_hardware: NodeHardware
) -> tuple[SlurmCluster, SiteFiles]:
    """`node_hardware.nodes` equal nodes, in the partitions and with the type of GPU that the
    request names, as a twin takes them. The GPUs are beside the sockets evenly.
    """
    gpu_type = request.kind()
    partitions = read_details(request.given).partitions or ("main",)
    gres_text = f"gpu:{gpu_type}:{node_hardware.gpus}" if gpu_type else f"gpu:{node_hardware.gpus}"
    conf_lines = [
        "ClusterName=assumed",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        f"TaskPlugin=task/{'affinity' if node_hardware.affinity else 'none'}",
        f"NodeName=n[1-{node_hardware.nodes}] Sockets={node_hardware.sockets} "
        f"CoresPerSocket={node_hardware.cores_per_socket} ThreadsPerCore={node_hardware.threads} "
        f"Gres={gres_text}",
    ]
    for position, partition in enumerate(partitions):
        default_flag = "NO" if position else "YES"
        conf_lines.append(f"PartitionName={partition} Nodes=ALL Default={default_flag} State=UP")
    node_names = [f"n{position + 1}" for position in range(node_hardware.nodes)]
    cluster = SlurmCluster((node_hardware,), tuple((name, 0) for name in node_names))
    return cluster, SiteFiles(
        slurm_conf="\n".join(conf_lines) + "\n", gres_conf=_gres_conf(node_hardware, gpu_type)
    )


def larger(node_hardware: NodeHardware, *, nodes: bool, gpus: bool, cores: bool) -> NodeHardware:
    """The same nodes with plenty of each size that is named."""
    sockets = node_hardware.sockets
    return replace(
        node_hardware,
        nodes=max(node_hardware.nodes, _LARGE_NODES) if nodes else node_hardware.nodes,
        gpus=_LARGE_GPUS if gpus else node_hardware.gpus,
        cores_per_socket=_LARGE_CORES // sockets if cores else node_hardware.cores_per_socket,
    )


def _gres_conf(node_hardware: NodeHardware, gpu_type: str) -> str:
    """A line for the GPUs beside each socket; the first sockets have one more where it must be."""
    conf_lines, first_gpu = [], 0
    gpus_per_socket, sockets_with_extra = divmod(node_hardware.gpus, node_hardware.sockets)
    for socket_index in range(node_hardware.sockets):
        gpu_count = gpus_per_socket + (socket_index < sockets_with_extra)
        if not gpu_count:
            continue
        device_files = (
            f"/dev/nvidia[{first_gpu}-{first_gpu + gpu_count - 1}]"
            if gpu_count > 1
            else f"/dev/nvidia{first_gpu}"
        )
        first_core = socket_index * node_hardware.cores_per_socket
        type_field = f"Type={gpu_type} " if gpu_type else ""
        last_core = first_core + node_hardware.cores_per_socket - 1
        conf_lines.append(
            f"Name=gpu {type_field}File={device_files} Cores={first_core}-{last_core}"
        )
        first_gpu += gpu_count
    return "\n".join(conf_lines) + "\n"
