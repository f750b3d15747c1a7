"""Reads the log that NCCL or RCCL writes with NCCL_DEBUG=INFO, of NCCL 2.3 to 2.30.

The lines changed over the years. A connection was `Ring 00 :` until 2.6, then `Channel 00 :`, and
is now `Channel 00/0 :`. A rank was a number, then had its bus id (`0[1a000]`), and now has its
device (`0[0]`). Shared memory was `direct shared memory` and is `SHM/direct/direct`. Peers were
`P2P/IPC` and are `P2P/CUMEM`, and over a rack's NVLink `P2P/MNNVL`. `A -> B … via WHAT` never
changed. Text before `NCCL` (mpirun's tags, times, Ray's names) is ignored. (Formats: NCCL's own
sources, src/transport and src/init.cc of each release.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from podwright.errors import InvalidRequest
from podwright.gpu.fabriclog._nccl_failures import FailureReader, LogWriter, NcclFailure

#: Published logs often have their host names removed.
_LINE_PATTERN = re.compile(
    r"(?:(?P<host>[^\s:|\]]+):(?P<pid>\d+):(?P<tid>\d+)\s+)?(?:\[(?P<device>-?\d+)\]\s+)?"
    r"(?:(?P<file>\S+)\s+(?:\(\S*\)\s+)?)?NCCL\s+(?P<level>INFO|WARN)\s+(?P<text>.*)"
)
_CONNECTION_PATTERN = re.compile(
    r"(?:Channel|Ring)\s+(?P<channel>\d+)(?:/\d+)?\s*:\s*(?P<a>\d+)\s*(?:\[(?P<on_a>[0-9a-f:.]+)\])?"
    r"\s*->\s*(?P<b>\d+)\s*(?:\[(?P<on_b>[0-9a-f:.]+)\])?\s*(?:\[(?P<way>send|receive)\]\s*)?via\s+"
    r"(?P<via>.+?)(?:\s+comm\s+0x[0-9a-f]+.*)?$"
)
_RANK_PATTERN = re.compile(r"comm 0x[0-9a-f]+ rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)")
_NODES_PATTERN = re.compile(r"\bnNodes (\d+)")
_VERSION_PATTERN = re.compile(r"(NCCL|RCCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_REPEATED_PATTERN = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_SETTING_PATTERN = re.compile(r"(NCCL_[A-Z0-9_]+) set (?:by|from) environment to (.*?)\.?\s*$")
_NETWORK_PATTERN = re.compile(r"Using (?:internal )?[nN]etwork (.+?)\s*$")
_ADAPTERS_PATTERN = re.compile(r"\[\d+\] ?([A-Za-z][\w.+-]*):\d+/(?:IB|RoCE)")
#: Several ports that NCCL combines: `[0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE}`.
_JOINED_ADAPTER_PATTERN = re.compile(r"\[\d+\]=\{")
_OFF = re.compile(
    r"GPU Direct RDMA Disabled for (?:HCA \d+ '?([\w.-]+)'?"
    r"|GPU \S+ / HCA (\w+) \((?:no module|not supported))"
)
_GPU_FABRIC_PATTERN = re.compile(r"MNNVL busId (\S+) .*\bstate (\d+) healthMask 0x([0-9a-fA-F]+)")
_PROVIDER_PATTERN = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_PLATFORM_PATTERN = re.compile(r"NET/OFI .*(?:Running on|for platform :) ([a-z][\w-]*\.[\w-]+)")
_ADAPTER_COUNT_PATTERN = re.compile(r"NET/OFI .*\(found (\d+) nics?\)")
_ADAPTER_NUMBER_PATTERN = re.compile(r"^NET/[^/]+/(\d+)")
_GPUDIRECT_FAR_PATTERN = re.compile(r"GPU Direct RDMA Disabled for GPU .*?/ HCA (\w+)")


@dataclass
class Pair:
    """Two ranks and the transport of their data: P2P, SHM, NET/IB, NET/Socket, COLLNET …"""

    a: int
    b: int
    transport: str
    gpudirect: bool
    detail: str
    channels: int = 0


@dataclass(frozen=True)
class GpuFabricReport:
    """What a GPU reported about the NVLink fabric of its rack, with NVML's numbers."""

    gpu: str
    state: int
    health: int


@dataclass
class FabricReport:
    """The content of a log.

    hosts: the host name of each rank, as far as the log has them. library: NCCL or RCCL. world: its
    number of ranks. nodes: its number of hosts. Both are 0 if the log does not have them. on: the
    GPU of each rank, by its number or its place on the bus. cards: the library's number of
    adapters. provider, platform: as the plugin of AWS reports them. sends: by host, the numbers of
    the adapters through which its processes send. fabric: GPUs of a rack that reported on its
    NVLink. names: of all hosts that wrote. one_name: names that several hosts have, which is known
    because two ranks there are on one GPU. failure: the first one, None if the log has none.
    aborted: whether a communicator was aborted. no_libibverbs: whether NCCL found no such library.
    worlds: the processes of each (rank, number of ranks) that joined a communicator.
    several_groups: whether the log has several
    communicators. Each counts its ranks from 0, so a rank's number does not determine its host.
    """

    library: str = "NCCL"
    version: str = ""
    ranks: int = 0
    networks: list[str] = field(default_factory=list)
    adapters: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    gpudirect_off: list[str] = field(default_factory=list)
    gpudirect_far: bool = False
    no_adapter: bool = False
    peers_disabled: bool = False
    warnings: list[str] = field(default_factory=list)
    world: int = 0
    nodes: int = 0
    provider: str = ""
    platform: str = ""
    cards: int = 0
    on: dict[int, str] = field(default_factory=dict)
    sends: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    fabric: list[GpuFabricReport] = field(default_factory=list)
    one_name: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    several_groups: bool = False
    failure: NcclFailure | None = None
    aborted: bool = False
    no_libibverbs: bool = False
    worlds: dict[tuple[int, int], set[str]] = field(default_factory=dict)

    @property
    def separate_worlds(self) -> int:
        """How many processes have rank 0 of a world of their own, though none is larger; 0 where a
        connection between hosts, or a count of them, says that they joined."""
        if self.nodes > 1 or any(pair.transport.startswith("NET/") for pair in self.pairs):
            return 0
        processes = self.worlds.get((0, self.world), set())
        hosts = {process.split(" ")[0] for process in processes}
        if len(processes) < 2 or (self.world > 1 and len(hosts) < len(processes)):
            return 0
        return len(processes)

    @property
    def seen(self) -> int:
        """The number of ranks that wrote, or are at an end of a connection."""
        return len(self.hosts.keys() | {rank for pair in self.pairs for rank in (pair.a, pair.b)})

    @property
    def several_hosts(self) -> bool:
        """Whether the ranks are known to be on more than one host."""
        return self.nodes > 1 or len(self.names) > 1 or bool(self.one_name)

    def between_hosts(self, pair: Pair) -> bool:
        """Whether the two ranks are known to be on different hosts, or used the network."""
        if self.several_groups and self.nodes == 1:
            return False
        host_a, host_b = self.hosts.get(pair.a), self.hosts.get(pair.b)
        if (
            host_a
            and host_b
            and not self.several_groups
            and (host_a != host_b or host_a not in self.one_name)
        ):
            return host_a != host_b
        return pair.transport.startswith(("NET/", "COLLNET"))


def transport_of(via_text: str) -> tuple[str, bool]:
    """Return (transport, GPUDirect RDMA) from the words `via_text`, after "via"."""
    if "shared memory" in via_text:
        return "SHM", False
    parts = via_text.split("/")
    if parts[0] in ("P2P", "SHM"):
        return parts[0], False
    if parts[0] in ("NET", "COLLNET", "RMA") and len(parts) > 1:
        name = re.sub(r"\(\d+\)$", "", parts[1]).strip()
        return (
            f"{parts[0]}/{'IB' if name.startswith('IB') else name}",
            "GDRDMA" in parts,
        )
    return parts[0], "GDRDMA" in parts


def read_log(log_lines: Iterable[str]) -> FabricReport:
    """The report of one log, or of several logs joined together. Raises InvalidRequest where the
    text contains nothing from NCCL."""
    log_report = FabricReport()
    pairs: dict[tuple[int, int, str, bool], tuple[Pair, set[str]]] = {}
    has_nccl_line = False
    ranks_by_process: dict[str, set[int]] = {}  # by process
    failure_reader = FailureReader()
    for line in log_lines:
        line_match = _LINE_PATTERN.search(line) if "NCCL" in line else None
        if not line_match:
            has_nccl_line |= failure_reader.framework_line(line)
        if "NCCL" not in line and "RCCL" not in line:
            continue
        version_match = _VERSION_PATTERN.search(line)
        if version_match:
            has_nccl_line, log_report.library, log_report.version = (
                True,
                version_match[1],
                version_match[2],
            )
        if not line_match:
            continue
        has_nccl_line = True
        if line_match["host"]:
            log_report.names.add(line_match["host"])
        message = _REPEATED_PATTERN.sub("", line_match["text"].strip())
        process = f"{line_match['host'] or ''} {_process_key(line_match)}"
        writer = LogWriter(line_match["host"] or "", process, f"{process} {line_match['tid']}")
        source_file = line_match["file"] or ""
        failure_reader.nccl_line(writer, line_match["level"], message, source_file)
        if line_match["host"] and (rank_match := _RANK_PATTERN.search(message)):
            joined = (int(rank_match["rank"]), int(rank_match["ranks"]))
            log_report.worlds.setdefault(joined, set()).add(process)
        connection_match = _CONNECTION_PATTERN.search(message)
        if connection_match:
            writer_rank = _add_connection(log_report, pairs, connection_match, line_match)
        else:
            writer_rank = _record_line(
                log_report, message, line_match["host"] or "", line_match["level"]
            )
        if writer_rank is not None and line_match["host"]:
            ranks_by_process.setdefault(process, set()).add(writer_rank)
    if not has_nccl_line:
        raise InvalidRequest(
            "no line of NCCL in this log",
            would_work="Run the job with NCCL_DEBUG=INFO and give its output",
        )
    log_report.failure = failure_reader.first()
    log_report.several_groups = any(len(ranks) > 1 for ranks in ranks_by_process.values())
    log_report.one_name = set() if log_report.several_groups else _shared_host_names(log_report)
    for pair, channels in pairs.values():
        pair.channels = len(channels)
        log_report.pairs.append(pair)
    log_report.pairs.sort(
        key=lambda logged_pair: (logged_pair.a, logged_pair.b, logged_pair.transport)
    )
    log_report.ranks = max(
        [
            log_report.world,
            *(logged_pair.b + 1 for logged_pair in log_report.pairs),
            *log_report.hosts,
            0,
        ]
    )
    return log_report


def _process_key(line_match: re.Match[str]) -> str:
    """Return the process together with its GPU, since a process may have several."""
    return f"{line_match['pid']}/{line_match['device'] or 0}"


def _shared_host_names(log_report: FabricReport) -> set[str]:
    seen_gpus: set[tuple[str, str]] = set()
    shared_names = set()
    for rank, host in log_report.hosts.items():
        host_and_gpu = (host, log_report.on.get(rank, f"rank {rank}"))
        if host_and_gpu in seen_gpus:
            shared_names.add(host)
        seen_gpus.add(host_and_gpu)
    return shared_names


def _add_connection(
    log_report: FabricReport,
    pairs_by_key: dict[tuple[int, int, str, bool], tuple[Pair, set[str]]],
    connection_match: re.Match[str],
    line_match: re.Match[str],
) -> int | None:
    """Add a connection. Returns the rank that wrote it, if that is certain."""
    host = line_match["host"]
    rank_a, rank_b = int(connection_match["a"]), int(connection_match["b"])
    via_text = connection_match["via"].strip()
    # NCCL 2.3 does not write [receive]. It names the network only on the receiving side.
    direction = connection_match["way"] or ("receive" if via_text.startswith("NET/") else "send")
    writer_rank = rank_b if direction == "receive" else rank_a
    if host:
        log_report.hosts.setdefault(writer_rank, host)
    for rank, place in ((rank_a, connection_match["on_a"]), (rank_b, connection_match["on_b"])):
        if place:
            log_report.on.setdefault(rank, place)
    transport, gpudirect = transport_of(via_text)
    if host and (adapter_match := _ADAPTER_NUMBER_PATTERN.match(via_text)) and direction == "send":
        adapter_numbers = log_report.sends.setdefault(host, {}).setdefault(
            _process_key(line_match), set()
        )
        adapter_numbers.add(int(adapter_match[1]))
    low_rank, high_rank = min(rank_a, rank_b), max(rank_a, rank_b)
    pair_key = (low_rank, high_rank, transport, gpudirect)
    if pair_key not in pairs_by_key:
        pairs_by_key[pair_key] = (Pair(low_rank, high_rank, transport, gpudirect, via_text), set())
    pairs_by_key[pair_key][1].add(connection_match["channel"])
    return writer_rank if connection_match["way"] or not via_text.startswith("NET/") else None


def _record_line(log_report: FabricReport, message: str, host: str, log_level: str) -> int | None:
    """Record what a line says. Returns the rank that wrote it, if the line has that."""
    rank_match = _RANK_PATTERN.search(message)
    # A communicator of one rank connects nothing.
    is_single_rank = rank_match and rank_match["ranks"] == "1"
    if rank_match and host and not is_single_rank:
        log_report.hosts.setdefault(int(rank_match["rank"]), host)
    if rank_match:
        log_report.world = max(log_report.world, int(rank_match["ranks"]))
    setting_match = _SETTING_PATTERN.search(message)
    if setting_match:
        log_report.settings[setting_match[1]] = setting_match[2]
    if nodes_match := _NODES_PATTERN.search(message):
        log_report.nodes = max(log_report.nodes, int(nodes_match[1]))
    if fabric_match := _GPU_FABRIC_PATTERN.search(message):
        gpu_fabric = GpuFabricReport(
            f"{host} {fabric_match[1]}", int(fabric_match[2]), int(fabric_match[3], 16)
        )
        if gpu_fabric not in log_report.fabric:
            log_report.fabric.append(gpu_fabric)
    if "NET/OFI" in message:
        _record_aws_plugin(log_report, message)
    network_match = _NETWORK_PATTERN.search(message)
    if network_match and network_match[1] not in log_report.networks:
        log_report.networks.append(network_match[1])
    if "NET/IB" in message and ("Using" in message or message.startswith("NET/IB: [")):
        log_report.cards = max(log_report.cards, len(_JOINED_ADAPTER_PATTERN.findall(message)))
        log_report.adapters += [
            name for name in _ADAPTERS_PATTERN.findall(message) if name not in log_report.adapters
        ]
    off_match = _OFF.search(message)
    if off_match and (adapter := off_match[1] or off_match[2]) not in log_report.gpudirect_off:
        log_report.gpudirect_off.append(adapter)
    log_report.gpudirect_far |= not off_match and bool(_GPUDIRECT_FAR_PATTERN.search(message))
    log_report.no_adapter |= "NET/IB : No device found" in message
    log_report.aborted |= "Abort COMPLETE" in message
    log_report.no_libibverbs |= "Failed to open libibverbs" in message
    log_report.peers_disabled |= "P2P is disabled between" in message
    if log_level == "WARN" and message not in log_report.warnings:
        log_report.warnings.append(message)
    return int(rank_match["rank"]) if rank_match and not is_single_rank else None


def _record_aws_plugin(log_report: FabricReport, message: str) -> None:
    if provider_match := _PROVIDER_PATTERN.search(message):
        log_report.provider = provider_match[1]
    if platform_match := _PLATFORM_PATTERN.search(message):
        log_report.platform = platform_match[1]
    if adapter_count_match := _ADAPTER_COUNT_PATTERN.search(message):
        log_report.cards = max(log_report.cards, int(adapter_count_match[1]))
