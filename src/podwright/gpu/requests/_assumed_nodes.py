"""Assumed equal nodes, as the files of a site with which a twin can be started."""

from __future__ import annotations

from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._request_details import read_details
from podwright.gpu.requests._site_answer_types import NodeHardware, SlurmCluster, SlurmPartition
from podwright.slurm.twin import SiteFiles


def assumed_site(
    request: SlurmRequest, node_hardware: NodeHardware
) -> tuple[SlurmCluster, SiteFiles]:
    """`node_hardware.nodes` equal nodes, in the partitions and with the type of GPU that the
    request names, as counts and a twin take them. The GPUs are beside the sockets evenly.
    """
    gpu_type = request.kind()
    partitions = read_details(request.given).partitions or ("main",)
    node_names = [f"n{position + 1}" for position in range(node_hardware.nodes)]
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
    assumed_cluster = SlurmCluster(
        (node_hardware,),
        tuple((node_name, 0) for node_name in node_names),
        tuple(SlurmPartition(node_name, frozenset(node_names)) for node_name in partitions),
        partitions[0],
    )
    return assumed_cluster, SiteFiles(
        slurm_conf="\n".join(conf_lines) + "\n", gres_conf=_gres_conf(node_hardware, gpu_type)
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
