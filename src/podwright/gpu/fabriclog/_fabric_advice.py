"""Finds faults in the fabric that a job really used, and names the settings that mend them.

Each finding names its evidence: a variable that NCCL read, a line that it wrote, or the transport
itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.gpu.fabriclog._read_nccl_log import FabricReport, Pair
from podwright.ground.judgement import Judgement, Says


@dataclass(frozen=True)
class FabricFinding:
    """One fault: an id, its description, and what to set or do."""

    id: str
    problem: str
    remedy: str
    pairs: int


#: Transports that move GPU memory in their own way, for which the log does not write GDRDMA.
_SELF_CARRYING_NETWORKS = ("FasTrak", "GPUDirectTCPX", "gIB")
_LIBFABRIC_NAMES = ("AWS Libfabric", "Libfabric", "OFI")
#: Amazon's machines with adapters that do not read GPU memory (the plugin's src/platform-aws.c).
_NO_GPUDIRECT_PLATFORMS = ("g4dn", "g5", "g6", "p3dn")


def judge(log_report: FabricReport) -> list[FabricFinding]:
    """The findings of a report, worst first; empty where nothing can be improved."""
    pairs_between_hosts = [pair for pair in log_report.pairs if log_report.between_hosts(pair)]
    pairs_on_host = [pair for pair in log_report.pairs if not log_report.between_hosts(pair)]
    network_names = {
        pair.transport.partition("/")[2]
        for pair in pairs_between_hosts
        if pair.transport.startswith("NET/")
    }
    socket_pairs = [pair for pair in pairs_between_hosts if pair.transport == "NET/Socket"]
    infiniband_pairs = [
        pair
        for pair in pairs_between_hosts
        if pair.transport.endswith("/IB") and not pair.gpudirect
    ]
    efa_pairs = [
        pair
        for pair in pairs_between_hosts
        if pair.transport[4:] in _LIBFABRIC_NAMES and not pair.gpudirect
    ]
    findings = [
        _advise_failure(log_report),
        _advise_separate_worlds(log_report),
        _advise_sockets(
            log_report,
            socket_pairs,
            choice_decides=not network_names
            and log_report.several_hosts
            and not log_report.separate_worlds,
        ),
        _advise_provider(log_report),
        _advise_gpudirect(
            log_report,
            infiniband_pairs,
            offer_decides=not network_names
            and log_report.several_hosts
            and not log_report.separate_worlds,
        ),
        _advise_gpudirect_efa(log_report, efa_pairs),
        _advise_shared_adapter(log_report),
        _advise_rack(log_report),
        _advise_near_network(
            log_report, [pair for pair in pairs_on_host if pair.transport.startswith("NET/")]
        ),
        _advise_shared_memory(
            log_report, [pair for pair in pairs_on_host if pair.transport == "SHM"]
        ),
    ]
    return [finding for finding in findings if finding]


def not_known(log_report: FabricReport) -> list[str]:
    """What a verdict needs and the log does not contain; empty where the log contains
    everything."""
    pairs_between_hosts = [pair for pair in log_report.pairs if log_report.between_hosts(pair)]
    unknown_facts = []
    if log_report.failure and log_report.failure.cause is None:
        unknown_facts.append(f"why the job failed: {log_report.failure.line}")
    if log_report.aborted and not log_report.failure:
        unknown_facts.append(
            "a communicator was aborted, and the log does not say why: a rank may have failed"
        )
    if log_report.separate_worlds:
        return unknown_facts
    if not log_report.pairs:
        unknown_facts.append(
            "no connection between ranks is in the log: there was one rank alone, the log ends "
            "before ranks spoke to each other, or NCCL_DEBUG_SUBSYS leaves INIT out"
        )
    elif log_report.several_hosts and not pairs_between_hosts:
        unknown_facts.append(
            "the ranks are on several hosts, and no connection between hosts is in the log"
        )
    elif not pairs_between_hosts and (seen_ranks := log_report.seen) < log_report.ranks:
        unknown_facts.append(
            f"{seen_ranks} of {log_report.ranks} ranks are in the log; where the others are it "
            "hides"
        )
    for network_name in sorted(
        {pair.transport.partition("/")[2] for pair in pairs_between_hosts if not pair.gpudirect}
    ):
        if network_name in ("", "IB", "Socket", *_LIBFABRIC_NAMES):
            continue
        if network_name.startswith(_SELF_CARRYING_NETWORKS):
            unknown_facts.append(f"how {network_name} carries GPU memory is not in the log")
        else:
            unknown_facts.append(f"{network_name} is not a known network")
    return unknown_facts


def _advise_failure(log_report: FabricReport) -> FabricFinding | None:
    failure = log_report.failure
    if failure is None:
        return None
    place = f" on {failure.host}" if failure.host else ""
    if failure.cause is None:
        return FabricFinding(
            "failed",
            f"the job failed{place}: {failure.line}",
            "run it with NCCL_DEBUG=INFO, so that NCCL names the cause"
            if failure.general
            else "see the lines before this one in the log of that rank",
            0,
        )
    return FabricFinding(
        failure.cause.id,
        f"the job failed{place}: {failure.cause.meaning} ({failure.line})",
        failure.cause.remedy,
        0,
    )


def _advise_separate_worlds(log_report: FabricReport) -> FabricFinding | None:
    count = log_report.separate_worlds
    if not count:
        return None
    who = "processes" if log_report.world == 1 else "hosts"
    return FabricFinding(
        "never-joined",
        f"{count} {who} never joined: each is a world of its own, of "
        f"{log_report.world} rank{'s' * (log_report.world != 1)}",
        "if they are to train together, start them with one rendezvous and the number of all: "
        "torchrun --nnodes=N --rdzv-endpoint=HOST:PORT, or RANK, WORLD_SIZE and MASTER_ADDR",
        0,
    )


def judged(
    log_report: FabricReport, findings: list[FabricFinding], unknown_facts: list[str]
) -> Judgement:
    """Whether the job ran, and every pair used the fabric as it should."""
    source = f"the log of {log_report.library} {log_report.version}".rstrip()
    if findings:
        verdict, because = Says.NO, findings[0].problem
    elif unknown_facts:
        verdict, because = Says.NOT_KNOWN, unknown_facts[0]
    else:
        verdict, because = Says.YES, "every pair uses the fabric as it should"
    return Judgement(says=verdict, because=because, source=source, left_out=tuple(unknown_facts))


def _setting_is_on(setting_value: str | None) -> bool:
    return setting_value is not None and setting_value.strip().lower() not in (
        "0",
        "",
        "no",
        "false",
    )


def _advise_sockets(
    log_report: FabricReport, socket_pairs: list[Pair], *, choice_decides: bool
) -> FabricFinding | None:
    """Find pairs of hosts that use sockets.

    choice_decides: the log has no connection between the hosts, so NCCL's choice of network counts
    instead.
    """
    # Before 2.6, NCCL did not name its choice, but it did report that it found no adapter.
    sockets_chosen = choice_decides and (
        log_report.networks or ["Socket"] * log_report.no_adapter
    ) == ["Socket"]
    if not socket_pairs and not sockets_chosen:
        return None
    problem = "ranks on different hosts talk over TCP (NET/Socket)"
    nccl_settings = log_report.settings
    if _setting_is_on(nccl_settings.get("NCCL_IB_DISABLE")):
        problem += f": NCCL_IB_DISABLE={nccl_settings['NCCL_IB_DISABLE']} switches InfiniBand off"
        remedy = "unset NCCL_IB_DISABLE, or export NCCL_IB_DISABLE=0"
    elif nccl_settings.get("NCCL_NET", "").lower() == "socket":
        problem += ": NCCL_NET=Socket asks for it"
        remedy = "unset NCCL_NET"
    elif "NCCL_IB_HCA" in nccl_settings:
        problem += f": NCCL_IB_HCA={nccl_settings['NCCL_IB_HCA']} leaves no adapter"
        remedy = "export NCCL_IB_HCA with names that `ibv_devices` shows on the nodes"
    elif log_report.no_libibverbs:
        problem += ": NCCL found no libibverbs, so it looked for no adapter"
        remedy = (
            "install libibverbs (Debian: libibverbs1 and ibverbs-providers; EL: rdma-core) where "
            "the job runs, inside the container if there is one. Where /sys/class/infiniband is "
            "empty on the nodes, there is nothing but TCP"
        )
    elif log_report.no_adapter:
        problem += ": NCCL found no InfiniBand device"
        remedy = (
            "see that `ibv_devices` lists the adapters inside the job (in a container: "
            "/dev/infiniband and libibverbs must be there). Where /sys/class/infiniband is empty "
            "on the nodes, there is nothing but TCP"
        )
    else:
        remedy = "export NCCL_IB_HCA=the adapters' names and NCCL_IB_DISABLE=0"
    if log_report.no_adapter or not (
        log_report.adapters or log_report.settings or log_report.no_libibverbs
    ):
        remedy += (
            "; EFA and Slingshot need a plugin instead: aws-ofi-nccl's (aws-ofi-rccl's) library "
            "must be found in LD_LIBRARY_PATH"
        )
    return FabricFinding("tcp", problem, remedy, len(socket_pairs))


def _advise_provider(log_report: FabricReport) -> FabricFinding | None:
    names = log_report.provider.split(";")
    if (
        not log_report.provider
        or "efa" in names
        or not {"tcp", "sockets", "net"}.intersection(names)
    ):
        return None
    return FabricFinding(
        "tcp",
        f"the plugin for EFA found no EFA and took {log_report.provider}",
        "see that `fi_info -p efa` lists adapters inside the job (in a container: "
        "/dev/infiniband/uverbs* must be there), and export FI_PROVIDER=efa",
        len([pair for pair in log_report.pairs if log_report.between_hosts(pair)]),
    )


def _advise_gpudirect_efa(log_report: FabricReport, efa_pairs: list[Pair]) -> FabricFinding | None:
    if not efa_pairs or log_report.platform.startswith(_NO_GPUDIRECT_PLATFORMS):
        return None
    text = f" ({log_report.platform})" if log_report.platform else ""
    return FabricFinding(
        "no-gpudirect",
        f"EFA did not read the GPUs' memory{text}: data passed through host memory",
        "use libfabric 1.18 and aws-ofi-nccl 1.7 or newer, with FI_EFA_USE_DEVICE_RDMA=1 on p4d. "
        "Machines of the families p3dn, g4dn, g5 and g6 cannot: there nothing is to be set",
        len(efa_pairs),
    )


def _advise_shared_adapter(log_report: FabricReport) -> FabricFinding | None:
    """Find hosts of which several ranks send through one adapter, while the others are idle."""
    adapter_count = log_report.cards or len(log_report.adapters)
    crowded_hosts = []
    for host, adapters_by_process in log_report.sends.items():
        adapter_numbers = set().union(*adapters_by_process.values())
        name_is_shared = host in log_report.one_name
        if (
            adapter_count > 1
            and len(adapters_by_process) > 1
            and len(adapter_numbers) == 1
            and not name_is_shared
        ):
            crowded_hosts.append(
                f"all {len(adapters_by_process)} of {host} that send use number "
                f"{min(adapter_numbers)}"
            )
    if not crowded_hosts:
        return None
    problem = (
        f"ranks share one of {adapter_count} network adapters: {'; '.join(sorted(crowded_hosts))}"
    )
    hca_setting = log_report.settings.get("NCCL_IB_HCA", "")
    remedy = (
        "see `nvidia-smi topo -m`: each GPU should have an adapter near it. In a virtual machine "
        "that hides PCIe, export NCCL_TOPO_FILE=the provider's topology file"
    )
    if hca_setting:
        remedy += f"; NCCL_IB_HCA={hca_setting} must name all of them"
    return FabricFinding("one-adapter", problem, remedy, len(log_report.sends))


#: The bits of NVML's fabric health mask (nvml.h): each field's first bit, and the meaning of TRUE.
_HEALTH_FAULTS = (
    (0, "fewer NVLinks than there should be"),
    (2, "routes are being recovered"),
    (4, "routes are ill"),
    (6, "accesses timed out and are being recovered"),
)
_CONFIGURATION_FAULTS = {
    2: "wrong system id",
    3: "wrong rack",
    4: "no partition",
    5: "NVLinks missing",
}


def _advise_rack(log_report: FabricReport) -> FabricFinding | None:
    gpus_by_fault: dict[str, list[str]] = {}
    for gpu_fabric in log_report.fabric:
        fault_texts = [text for bit, text in _HEALTH_FAULTS if gpu_fabric.health >> bit & 3 == 1]
        fault_texts += [
            text
            for number, text in _CONFIGURATION_FAULTS.items()
            if gpu_fabric.health >> 8 & 15 == number
        ]
        if gpu_fabric.state in (1, 2):
            fault_texts.append("the GPU had not joined the fabric")
        for fault_text in fault_texts:
            gpus_by_fault.setdefault(fault_text, []).append(gpu_fabric.gpu)
    imex_is_silent = any("MNNVL" in text and "IMEX" in text for text in log_report.warnings)
    if imex_is_silent:
        gpus_by_fault["IMEX does not answer"] = []
    if not gpus_by_fault:
        return None
    summary = "; ".join(
        f"{fault_text} ({', '.join(gpus[:4])}{', …' * (len(gpus) > 4)})" if gpus else fault_text
        for fault_text, gpus in gpus_by_fault.items()
    )
    return FabricFinding(
        "rack-fabric",
        f"the NVLink fabric of the rack is not well: {summary}",
        "see `nvidia-smi -q -d FABRIC` (`nvidia-smi -q | grep -A8 Fabric`) on those nodes, and "
        "`nvidia-imex-ctl -N`; drain a node whose NVLinks are missing",
        sum(map(len, gpus_by_fault.values())),
    )


def _advise_gpudirect(
    log_report: FabricReport, infiniband_pairs: list[Pair], *, offer_decides: bool
) -> FabricFinding | None:
    """Find connections without GPUDirect RDMA.

    offer_decides: the log has no connection between the hosts, so what the driver offers counts
    instead.
    """
    adapter_names = {name.partition(":")[0] for name in log_report.adapters}
    no_adapter_can = (
        offer_decides and bool(adapter_names) and adapter_names <= set(log_report.gpudirect_off)
    )
    if not infiniband_pairs and not no_adapter_can:
        return None
    problem = "GPUDirect RDMA was off: data passed through host memory"
    if adapter_names and all(name.startswith("hfi1_") for name in adapter_names):
        remedy = "use the plugin psm2-nccl: over Omni-Path (hfi1) only PSM2 reads GPUs' memory"
        return FabricFinding("no-gpudirect", problem, remedy, len(infiniband_pairs))
    distance_level = log_report.settings.get("NCCL_NET_GDR_LEVEL") or log_report.settings.get(
        "NCCL_IB_CUDA_SUPPORT"
    )
    if log_report.gpudirect_off:
        problem += ", because the driver offers it for none of " + ", ".join(
            log_report.gpudirect_off
        )
        remedy = "load nvidia_peermem on the nodes (modprobe nvidia_peermem), or use DMA-BUF"
    elif distance_level is not None and distance_level.upper() in (
        "0",
        "LOC",
        "1",
        "2",
        "PIX",
        "PXB",
    ):
        problem += f", because NCCL_NET_GDR_LEVEL={distance_level} allows it only at that distance"
        remedy = f"export {_any_distance_setting(log_report)}"
        remedy += " (PHB where GPU and adapter share a root)" * remedy.endswith("SYS")
    elif log_report.gpudirect_far:
        problem += ", because GPU and adapter are too far apart for NCCL's default"
        remedy = (
            f"export {_any_distance_setting(log_report)}, and NCCL_IB_HCA=the adapters near the "
            "GPUs"
        )
    else:
        remedy = f"export {_any_distance_setting(log_report)} and see that nvidia_peermem is loaded"
    return FabricFinding("no-gpudirect", problem, remedy, len(infiniband_pairs))


def _any_distance_setting(log_report: FabricReport) -> str:
    """Return the setting that allows GPUDirect RDMA at any distance between GPU and adapter.

    Before 2.6 the distance was a number, and SYS was read as 0, which switches it off (NCCL's
    param.h).
    """
    numbers = [int(part) for part in log_report.version.split(".") if part]
    if numbers[:1] != [2] or numbers >= [2, 6]:
        return "NCCL_NET_GDR_LEVEL=SYS"
    return "NCCL_IB_GDR_LEVEL=5" if numbers < [2, 4] else "NCCL_NET_GDR_LEVEL=5"


def _advise_near_network(
    log_report: FabricReport, network_pairs: list[Pair]
) -> FabricFinding | None:
    if not network_pairs:
        return None
    problem = "ranks on one host talk over the network instead of NVLink or PCIe"
    nccl_settings = log_report.settings
    separating_variables = [
        name
        for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
        if _setting_is_on(nccl_settings.get(name))
    ]
    separating_variables += [
        name for name in ("NCCL_P2P_LEVEL",) if nccl_settings.get(name, "").upper() in ("LOC", "0")
    ]
    if not separating_variables:
        return FabricFinding("near-network", problem, _SHOW_ALL_GPUS_REMEDY, len(network_pairs))
    problem += (
        ": "
        + ", ".join(f"{name}={nccl_settings[name]}" for name in separating_variables)
        + " asks for it"
    )
    return FabricFinding(
        "near-network", problem, f"unset {' '.join(separating_variables)}", len(network_pairs)
    )


_SHOW_ALL_GPUS_REMEDY = (
    "let each task see all GPUs of its node and choose by SLURM_LOCALID "
    "(--gpus-per-node instead of --gpus-per-task), and share /dev/shm"
)


def _advise_shared_memory(
    log_report: FabricReport, shared_memory_pairs: list[Pair]
) -> FabricFinding | None:
    if not shared_memory_pairs:
        return None
    problem = "ranks on one host talk through shared memory instead of NVLink or PCIe"
    if _setting_is_on(log_report.settings.get("NCCL_P2P_DISABLE")):
        problem += ": NCCL_P2P_DISABLE is set"
        remedy = "unset NCCL_P2P_DISABLE"
    elif "NCCL_P2P_LEVEL" in log_report.settings:
        problem += f": NCCL_P2P_LEVEL={log_report.settings['NCCL_P2P_LEVEL']} keeps peers apart"
        remedy = "unset NCCL_P2P_LEVEL"
    elif log_report.peers_disabled:
        problem += ": the driver allows no peer access between these GPUs"
        remedy = "switch PCIe ACS off on the nodes, and see `nvidia-smi topo -p2p r`"
    else:
        remedy = f"{_SHOW_ALL_GPUS_REMEDY}; where that is so already, see `nvidia-smi topo -p2p r`"
    return FabricFinding("near-memory", problem, remedy, len(shared_memory_pairs))
