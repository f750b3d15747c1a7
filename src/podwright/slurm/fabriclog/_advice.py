"""What is wrong with the fabric that a job really used, and what to set.

Each finding names its evidence: a variable that NCCL read, a line that it wrote, or the
transport itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.fabriclog._read import Pair, Report


@dataclass(frozen=True)
class Finding:
    """One thing to mend: an id, what was seen, and what to set or do."""

    id: str
    problem: str
    remedy: str
    pairs: int


def judge(report: Report) -> list[Finding]:
    """The findings of a report, worst first; empty where the fabric is used as it should be."""
    far = [p for p in report.pairs if report.between_hosts(p)]
    near = [p for p in report.pairs if not report.between_hosts(p)]
    found = [_sockets(report, [p for p in far if p.transport == "NET/Socket"])]
    fast = [p for p in far if p.transport.startswith(("NET/", "COLLNET"))]
    fast = [p for p in fast if p.transport != "NET/Socket" and not p.gpudirect]
    found.append(_no_gpudirect(report, fast))
    found.append(_near_network(report, [p for p in near if p.transport.startswith("NET/")]))
    found.append(_near_memory(report, [p for p in near if p.transport == "SHM"]))
    return [finding for finding in found if finding]


def _off(value: str | None) -> bool:
    return value is not None and value.strip().lower() not in ("0", "", "no", "false")


def _sockets(report: Report, pairs: list[Pair]) -> Finding | None:
    if not pairs:
        return None
    problem = "ranks on different hosts talk over TCP (NET/Socket)"
    settings = report.settings
    if _off(settings.get("NCCL_IB_DISABLE")):
        problem += f": NCCL_IB_DISABLE={settings['NCCL_IB_DISABLE']} switches InfiniBand off"
        remedy = "unset NCCL_IB_DISABLE, or export NCCL_IB_DISABLE=0"
    elif settings.get("NCCL_NET", "").lower() == "socket":
        problem += ": NCCL_NET=Socket asks for it"
        remedy = "unset NCCL_NET"
    elif "NCCL_IB_HCA" in settings:
        problem += f": NCCL_IB_HCA={settings['NCCL_IB_HCA']} leaves no adapter"
        remedy = "export NCCL_IB_HCA with names that `ibv_devices` shows on the nodes"
    elif report.no_adapter:
        problem += ": NCCL found no InfiniBand device"
        remedy = (
            "see that `ibv_devices` lists the adapters inside the job (in a container: "
            "/dev/infiniband and libibverbs must be there), then export NCCL_IB_HCA=their names"
        )
    else:
        remedy = "export NCCL_IB_HCA=the adapters' names and NCCL_IB_DISABLE=0"
    return Finding("tcp", problem, remedy, len(pairs))


def _no_gpudirect(report: Report, pairs: list[Pair]) -> Finding | None:
    if not pairs:
        return None
    problem = "GPUDirect RDMA was off: data passed through host memory"
    level = report.settings.get("NCCL_NET_GDR_LEVEL") or report.settings.get("NCCL_IB_CUDA_SUPPORT")
    if report.gpudirect_off:
        problem += ", because the driver offers it for none of " + ", ".join(report.gpudirect_off)
        remedy = "load nvidia_peermem on the nodes (modprobe nvidia_peermem), or use DMA-BUF"
    elif level is not None and level.upper() in ("0", "LOC", "1", "2", "PIX", "PXB"):
        problem += f", because NCCL_NET_GDR_LEVEL={level} allows it only at that distance"
        remedy = "export NCCL_NET_GDR_LEVEL=SYS (PHB where GPU and adapter share a root)"
    elif report.gpudirect_far:
        problem += ", because GPU and adapter are too far apart for NCCL's default"
        remedy = "export NCCL_NET_GDR_LEVEL=SYS, and NCCL_IB_HCA=the adapters near the GPUs"
    else:
        remedy = "export NCCL_NET_GDR_LEVEL=SYS and see that nvidia_peermem is loaded"
    return Finding("no-gpudirect", problem, remedy, len(pairs))


def _near_network(report: Report, pairs: list[Pair]) -> Finding | None:
    if not pairs:
        return None
    problem = "ranks on one host talk over the network instead of NVLink or PCIe"
    if _off(report.settings.get("NCCL_P2P_DISABLE")):
        return Finding(
            "near-network",
            f"{problem}: NCCL_P2P_DISABLE is set",
            "unset NCCL_P2P_DISABLE",
            len(pairs),
        )
    return Finding("near-network", problem, _VISIBLE, len(pairs))


_VISIBLE = (
    "let each task see all GPUs of its node and choose by SLURM_LOCALID "
    "(--gpus-per-node instead of --gpus-per-task), and share /dev/shm"
)


def _near_memory(report: Report, pairs: list[Pair]) -> Finding | None:
    if not pairs:
        return None
    problem = "ranks on one host talk through shared memory instead of NVLink or PCIe"
    if _off(report.settings.get("NCCL_P2P_DISABLE")):
        problem += ": NCCL_P2P_DISABLE is set"
        remedy = "unset NCCL_P2P_DISABLE"
    elif "NCCL_P2P_LEVEL" in report.settings:
        problem += f": NCCL_P2P_LEVEL={report.settings['NCCL_P2P_LEVEL']} keeps peers apart"
        remedy = "unset NCCL_P2P_LEVEL"
    elif report.peers_disabled:
        problem += ": the driver allows no peer access between these GPUs"
        remedy = "switch PCIe ACS off on the nodes, and see `nvidia-smi topo -p2p r`"
    else:
        remedy = f"{_VISIBLE}; where that is so already, see `nvidia-smi topo -p2p r`"
    return Finding("near-memory", problem, remedy, len(pairs))
