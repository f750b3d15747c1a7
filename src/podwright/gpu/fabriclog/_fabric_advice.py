"""Finds faults in the fabric that a job really used, and names the settings that mend them.

Each finding names its evidence: a variable that NCCL read, a line that it wrote, or the transport
itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.gpu.fabriclog._read_log import FabricReport, Pair


@dataclass(frozen=True)
class FabricFinding:
    """One fault: an id, its description, and what to set or do."""

    id: str
    problem: str
    remedy: str
    pairs: int


#: Transports that move GPU memory in their own way, for which the log does not write GDRDMA.
_OWN_WAY = ("FasTrak", "GPUDirectTCPX", "gIB")
_LIBFABRIC = ("AWS Libfabric", "Libfabric", "OFI")
#: Amazon's machines with adapters that do not read GPU memory (the plugin's src/platform-aws.c).
_NO_GPUDIRECT = ("g4dn", "g5", "g6", "p3dn")


def judge(report: FabricReport) -> list[FabricFinding]:
    """The findings of a report, worst first; empty where nothing can be improved."""
    far = [p for p in report.pairs if report.between_hosts(p)]
    near = [p for p in report.pairs if not report.between_hosts(p)]
    networks = {p.transport.partition("/")[2] for p in far if p.transport.startswith("NET/")}
    sockets = [p for p in far if p.transport == "NET/Socket"]
    ib = [p for p in far if p.transport.endswith("/IB") and not p.gpudirect]
    efa = [p for p in far if p.transport[4:] in _LIBFABRIC and not p.gpudirect]
    findings = [
        _sockets(report, sockets, choice_decides=not networks and report.several_hosts),
        _provider(report),
        _no_gpudirect(report, ib, offer_decides=not networks and report.several_hosts),
        _no_gpudirect_efa(report, efa),
        _one_adapter(report),
        _rack(report),
        _near_network(report, [p for p in near if p.transport.startswith("NET/")]),
        _advise_shared_memory(report, [p for p in near if p.transport == "SHM"]),
    ]
    return [finding for finding in findings if finding]


def not_known(report: FabricReport) -> list[str]:
    """What a verdict needs and the log does not contain; empty where the log contains
    everything."""
    far = [p for p in report.pairs if report.between_hosts(p)]
    out = []
    if not report.pairs:
        out.append(
            "no connection between ranks is in the log: there was one rank alone, the log ends "
            "before ranks spoke to each other, or NCCL_DEBUG_SUBSYS leaves INIT out"
        )
    elif report.several_hosts and not far:
        out.append("the ranks are on several hosts, and no connection between hosts is in the log")
    elif not far and (seen := report.seen) < report.ranks:
        out.append(f"{seen} of {report.ranks} ranks are in the log; where the others are it hides")
    for name in sorted({p.transport.partition("/")[2] for p in far if not p.gpudirect}):
        if name in ("", "IB", "Socket", *_LIBFABRIC):
            continue
        if name.startswith(_OWN_WAY):
            out.append(f"how {name} carries GPU memory is not in the log")
        else:
            out.append(f"{name} is not a known network")
    return out


def _off(value: str | None) -> bool:
    return value is not None and value.strip().lower() not in ("0", "", "no", "false")


def _sockets(
    report: FabricReport, pairs: list[Pair], *, choice_decides: bool
) -> FabricFinding | None:
    """Find pairs of hosts that use sockets.

    said: the log has no connection between the hosts, so NCCL's choice of network counts instead.
    """
    # Before 2.6, NCCL did not name its choice, but it did report that it found no adapter.
    chosen = choice_decides and (report.networks or ["Socket"] * report.no_adapter) == ["Socket"]
    if not pairs and not chosen:
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
    if report.no_adapter or not (report.adapters or report.settings):
        remedy += (
            "; EFA and Slingshot need a plugin instead: aws-ofi-nccl's (aws-ofi-rccl's) library "
            "must be found in LD_LIBRARY_PATH"
        )
    return FabricFinding("tcp", problem, remedy, len(pairs))


def _provider(report: FabricReport) -> FabricFinding | None:
    names = report.provider.split(";")
    if not report.provider or "efa" in names or not {"tcp", "sockets", "net"}.intersection(names):
        return None
    return FabricFinding(
        "tcp",
        f"the plugin for EFA found no EFA and took {report.provider}",
        "see that `fi_info -p efa` lists adapters inside the job (in a container: "
        "/dev/infiniband/uverbs* must be there), and export FI_PROVIDER=efa",
        len([p for p in report.pairs if report.between_hosts(p)]),
    )


def _no_gpudirect_efa(report: FabricReport, pairs: list[Pair]) -> FabricFinding | None:
    if not pairs or report.platform.startswith(_NO_GPUDIRECT):
        return None
    where = f" ({report.platform})" if report.platform else ""
    return FabricFinding(
        "no-gpudirect",
        f"EFA did not read the GPUs' memory{where}: data passed through host memory",
        "use libfabric 1.18 and aws-ofi-nccl 1.7 or newer, with FI_EFA_USE_DEVICE_RDMA=1 on p4d. "
        "Machines of the families p3dn, g4dn, g5 and g6 cannot: there nothing is to be set",
        len(pairs),
    )


def _one_adapter(report: FabricReport) -> FabricFinding | None:
    """Find hosts of which several ranks send through one adapter, while the others are idle."""
    adapters = report.cards or len(report.adapters)
    crowded = []
    for host, ranks in report.sends.items():
        devices = set().union(*ranks.values())
        mixed = host in report.one_name
        if adapters > 1 and len(ranks) > 1 and len(devices) == 1 and not mixed:
            crowded.append(f"all {len(ranks)} of {host} that send use number {min(devices)}")
    if not crowded:
        return None
    problem = f"ranks share one of {adapters} network adapters: {'; '.join(sorted(crowded))}"
    hca = report.settings.get("NCCL_IB_HCA", "")
    remedy = (
        "see `nvidia-smi topo -m`: each GPU should have an adapter near it. In a virtual machine "
        "that hides PCIe, export NCCL_TOPO_FILE=the provider's topology file"
    )
    if hca:
        remedy += f"; NCCL_IB_HCA={hca} must name all of them"
    return FabricFinding("one-adapter", problem, remedy, len(report.sends))


#: The bits of NVML's fabric health mask (nvml.h): each field's first bit, and the meaning of TRUE.
_HEALTH = (
    (0, "fewer NVLinks than there should be"),
    (2, "routes are being recovered"),
    (4, "routes are ill"),
    (6, "accesses timed out and are being recovered"),
)
_CONFIGURATION = {2: "wrong system id", 3: "wrong rack", 4: "no partition", 5: "NVLinks missing"}


def _rack(report: FabricReport) -> FabricFinding | None:
    ill: dict[str, list[str]] = {}
    for fabric in report.fabric:
        words = [text for bit, text in _HEALTH if fabric.health >> bit & 3 == 1]
        words += [
            text for number, text in _CONFIGURATION.items() if fabric.health >> 8 & 15 == number
        ]
        if fabric.state in (1, 2):
            words.append("the GPU had not joined the fabric")
        for word in words:
            ill.setdefault(word, []).append(fabric.gpu)
    imex = any("MNNVL" in text and "IMEX" in text for text in report.warnings)
    if imex:
        ill["IMEX does not answer"] = []
    if not ill:
        return None
    summary = "; ".join(
        f"{word} ({', '.join(gpus[:4])}{', …' * (len(gpus) > 4)})" if gpus else word
        for word, gpus in ill.items()
    )
    return FabricFinding(
        "rack-fabric",
        f"the NVLink fabric of the rack is not well: {summary}",
        "see `nvidia-smi -q -d FABRIC` (`nvidia-smi -q | grep -A8 Fabric`) on those nodes, and "
        "`nvidia-imex-ctl -N`; drain a node whose NVLinks are missing",
        sum(map(len, ill.values())),
    )


def _no_gpudirect(
    report: FabricReport, pairs: list[Pair], *, offer_decides: bool
) -> FabricFinding | None:
    """Find connections without GPUDirect RDMA.

    said: the log has no connection between the hosts, so what the driver offers counts instead.
    """
    named = {name.partition(":")[0] for name in report.adapters}
    none_can = offer_decides and bool(named) and named <= set(report.gpudirect_off)
    if not pairs and not none_can:
        return None
    problem = "GPUDirect RDMA was off: data passed through host memory"
    if named and all(name.startswith("hfi1_") for name in named):
        remedy = "use the plugin psm2-nccl: over Omni-Path (hfi1) only PSM2 reads GPUs' memory"
        return FabricFinding("no-gpudirect", problem, remedy, len(pairs))
    level = report.settings.get("NCCL_NET_GDR_LEVEL") or report.settings.get("NCCL_IB_CUDA_SUPPORT")
    if report.gpudirect_off:
        problem += ", because the driver offers it for none of " + ", ".join(report.gpudirect_off)
        remedy = "load nvidia_peermem on the nodes (modprobe nvidia_peermem), or use DMA-BUF"
    elif level is not None and level.upper() in ("0", "LOC", "1", "2", "PIX", "PXB"):
        problem += f", because NCCL_NET_GDR_LEVEL={level} allows it only at that distance"
        remedy = f"export {_at_any_distance(report)}"
        remedy += " (PHB where GPU and adapter share a root)" * remedy.endswith("SYS")
    elif report.gpudirect_far:
        problem += ", because GPU and adapter are too far apart for NCCL's default"
        remedy = f"export {_at_any_distance(report)}, and NCCL_IB_HCA=the adapters near the GPUs"
    else:
        remedy = f"export {_at_any_distance(report)} and see that nvidia_peermem is loaded"
    return FabricFinding("no-gpudirect", problem, remedy, len(pairs))


def _at_any_distance(report: FabricReport) -> str:
    """Return the setting that allows GPUDirect RDMA at any distance between GPU and adapter.

    Before 2.6 the distance was a number, and SYS was read as 0, which switches it off (NCCL's
    param.h).
    """
    numbers = [int(number) for number in report.version.split(".") if number]
    if numbers[:1] != [2] or numbers >= [2, 6]:
        return "NCCL_NET_GDR_LEVEL=SYS"
    return "NCCL_IB_GDR_LEVEL=5" if numbers < [2, 4] else "NCCL_NET_GDR_LEVEL=5"


def _near_network(report: FabricReport, pairs: list[Pair]) -> FabricFinding | None:
    if not pairs:
        return None
    problem = "ranks on one host talk over the network instead of NVLink or PCIe"
    settings = report.settings
    apart = [name for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if _off(settings.get(name))]
    apart += [
        name for name in ("NCCL_P2P_LEVEL",) if settings.get(name, "").upper() in ("LOC", "0")
    ]
    if not apart:
        return FabricFinding("near-network", problem, _VISIBLE, len(pairs))
    problem += ": " + ", ".join(f"{name}={settings[name]}" for name in apart) + " asks for it"
    return FabricFinding("near-network", problem, f"unset {' '.join(apart)}", len(pairs))


_VISIBLE = (
    "let each task see all GPUs of its node and choose by SLURM_LOCALID "
    "(--gpus-per-node instead of --gpus-per-task), and share /dev/shm"
)


def _advise_shared_memory(report: FabricReport, pairs: list[Pair]) -> FabricFinding | None:
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
    return FabricFinding("near-memory", problem, remedy, len(pairs))
