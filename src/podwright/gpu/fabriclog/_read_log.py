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

#: Published logs often have their host names removed.
_LINE = re.compile(
    r"(?:(?P<host>[^\s:|\]]+):(?P<pid>\d+):(?P<tid>\d+)\s+)?(?:\[(?P<device>-?\d+)\]\s+)?"
    r"(?:\S+\s+(?:\(\S*\)\s+)?)?NCCL\s+(?P<level>INFO|WARN)\s+(?P<text>.*)"
)
_HOP = re.compile(
    r"(?:Channel|Ring)\s+(?P<channel>\d+)(?:/\d+)?\s*:\s*(?P<a>\d+)\s*(?:\[(?P<on_a>[0-9a-f:.]+)\])?"
    r"\s*->\s*(?P<b>\d+)\s*(?:\[(?P<on_b>[0-9a-f:.]+)\])?\s*(?:\[(?P<way>send|receive)\]\s*)?via\s+"
    r"(?P<via>.+?)(?:\s+comm\s+0x[0-9a-f]+.*)?$"
)
_RANK = re.compile(r"comm 0x[0-9a-f]+ rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)")
_NODES = re.compile(r"\bnNodes (\d+)")
_VERSION = re.compile(r"(NCCL|RCCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]+) set (?:by|from) environment to (.*?)\.?\s*$")
_NETWORK = re.compile(r"Using (?:internal )?[nN]etwork (.+?)\s*$")
_ADAPTERS = re.compile(r"\[\d+\] ?([A-Za-z][\w.+-]*):\d+/(?:IB|RoCE)")
#: Several ports that NCCL combines: `[0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE}`.
_JOINED = re.compile(r"\[\d+\]=\{")
_OFF = re.compile(
    r"GPU Direct RDMA Disabled for (?:HCA \d+ '?([\w.-]+)'?"
    r"|GPU \S+ / HCA (\w+) \((?:no module|not supported))"
)
_FABRIC = re.compile(r"MNNVL busId (\S+) .*\bstate (\d+) healthMask 0x([0-9a-fA-F]+)")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)")
_PLATFORM = re.compile(r"NET/OFI .*(?:Running on|for platform :) ([a-z][\w-]*\.[\w-]+)")
_ADAPTER_COUNT = re.compile(r"NET/OFI .*\(found (\d+) nics?\)")
_DEVICE = re.compile(r"^NET/[^/]+/(\d+)")
_PLACED = re.compile(r"GPU Direct RDMA Disabled for GPU .*?/ HCA (\w+)")


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
class Fabric:
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
    because two ranks there are on one GPU. several_groups: whether the log has several
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
    fabric: list[Fabric] = field(default_factory=list)
    one_name: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    several_groups: bool = False

    @property
    def seen(self) -> int:
        """The number of ranks that wrote, or are at an end of a connection."""
        return len(self.hosts.keys() | {rank for p in self.pairs for rank in (p.a, p.b)})

    @property
    def several_hosts(self) -> bool:
        """Whether the ranks are known to be on more than one host."""
        return self.nodes > 1 or len(self.names) > 1 or bool(self.one_name)

    def between_hosts(self, pair: Pair) -> bool:
        """Whether the two ranks are known to be on different hosts, or used the network."""
        if self.several_groups and self.nodes == 1:
            return False
        a, b = self.hosts.get(pair.a), self.hosts.get(pair.b)
        if a and b and not self.several_groups and (a != b or a not in self.one_name):
            return a != b
        return pair.transport.startswith(("NET/", "COLLNET"))


def transport_of(via: str) -> tuple[str, bool]:
    """Return (transport, GPUDirect RDMA) from the words after `via`."""
    if "shared memory" in via:
        return "SHM", False
    words = via.split("/")
    if words[0] in ("P2P", "SHM"):
        return words[0], False
    if words[0] in ("NET", "COLLNET", "RMA") and len(words) > 1:
        name = re.sub(r"\(\d+\)$", "", words[1]).strip()
        return f"{words[0]}/{'IB' if name.startswith('IB') else name}", "GDRDMA" in words
    return words[0], "GDRDMA" in words


def read_log(lines: Iterable[str]) -> FabricReport:
    """The report of one log, or of several logs joined together. Raises InvalidRequest where the
    text contains nothing from NCCL."""
    report = FabricReport()
    pairs: dict[tuple[int, int, str, bool], tuple[Pair, set[str]]] = {}
    spoke = False
    ranks: dict[str, set[int]] = {}  # by process
    for line in lines:
        if "NCCL" not in line and "RCCL" not in line:
            continue
        version = _VERSION.search(line)
        if version:
            spoke, report.library, report.version = True, version[1], version[2]
        match = _LINE.search(line)
        if not match:
            continue
        spoke = True
        if match["host"]:
            report.names.add(match["host"])
        text = _REPEATED.sub("", match["text"].strip())
        hop = _HOP.search(text)
        if hop:
            rank = _add(report, pairs, hop, match)
        else:
            rank = _note(report, text, match["host"] or "", match["level"])
        if rank is not None and match["host"]:
            ranks.setdefault(f"{match['host']} {_process(match)}", set()).add(rank)
    if not spoke:
        raise InvalidRequest(
            "no line of NCCL in this log",
            would_work="Run the job with NCCL_DEBUG=INFO and give its output",
        )
    report.several_groups = any(len(own) > 1 for own in ranks.values())
    report.one_name = set() if report.several_groups else _one_name(report)
    for pair, channels in pairs.values():
        pair.channels = len(channels)
        report.pairs.append(pair)
    report.pairs.sort(key=lambda p: (p.a, p.b, p.transport))
    report.ranks = max([report.world, *(p.b + 1 for p in report.pairs), *report.hosts, 0])
    return report


def _process(line: re.Match[str]) -> str:
    """Return the process together with its GPU, since a process may have several."""
    return f"{line['pid']}/{line['device'] or 0}"


def _one_name(report: FabricReport) -> set[str]:
    seen: set[tuple[str, str]] = set()
    out = set()
    for rank, host in report.hosts.items():
        key = (host, report.on.get(rank, f"rank {rank}"))
        if key in seen:
            out.add(host)
        seen.add(key)
    return out


def _add(
    report: FabricReport,
    pairs: dict[tuple[int, int, str, bool], tuple[Pair, set[str]]],
    hop: re.Match[str],
    line: re.Match[str],
) -> int | None:
    """Add a connection. Returns the rank that wrote it, if that is certain."""
    host = line["host"]
    a, b = int(hop["a"]), int(hop["b"])
    via = hop["via"].strip()
    # NCCL 2.3 does not write [receive]. It names the network only on the receiving side.
    direction = hop["way"] or ("receive" if via.startswith("NET/") else "send")
    speaker = b if direction == "receive" else a
    if host:
        report.hosts.setdefault(speaker, host)
    for rank, place in ((a, hop["on_a"]), (b, hop["on_b"])):
        if place:
            report.on.setdefault(rank, place)
    transport, gpudirect = transport_of(via)
    if host and (device := _DEVICE.match(via)) and direction == "send":
        own = report.sends.setdefault(host, {}).setdefault(_process(line), set())
        own.add(int(device[1]))
    low, high = min(a, b), max(a, b)
    key = (low, high, transport, gpudirect)
    if key not in pairs:
        pairs[key] = (Pair(low, high, transport, gpudirect, via), set())
    pairs[key][1].add(hop["channel"])
    return speaker if hop["way"] or not via.startswith("NET/") else None


def _note(report: FabricReport, text: str, host: str, level: str) -> int | None:
    """Record what a line says. Returns the rank that wrote it, if the line has that."""
    rank = _RANK.search(text)
    alone = rank and rank["ranks"] == "1"  # a communicator of one rank connects nothing
    if rank and host and not alone:
        report.hosts.setdefault(int(rank["rank"]), host)
    if rank:
        report.world = max(report.world, int(rank["ranks"]))
    setting = _SETTING.search(text)
    if setting:
        report.settings[setting[1]] = setting[2]
    if nodes := _NODES.search(text):
        report.nodes = max(report.nodes, int(nodes[1]))
    if fabric := _FABRIC.search(text):
        entry = Fabric(f"{host} {fabric[1]}", int(fabric[2]), int(fabric[3], 16))
        if entry not in report.fabric:
            report.fabric.append(entry)
    if "NET/OFI" in text:
        _plugin_of_aws(report, text)
    network = _NETWORK.search(text)
    if network and network[1] not in report.networks:
        report.networks.append(network[1])
    if "NET/IB" in text and ("Using" in text or text.startswith("NET/IB: [")):
        report.cards = max(report.cards, len(_JOINED.findall(text)))
        report.adapters += [a for a in _ADAPTERS.findall(text) if a not in report.adapters]
    match = _OFF.search(text)
    if match and (adapter := match[1] or match[2]) not in report.gpudirect_off:
        report.gpudirect_off.append(adapter)
    report.gpudirect_far |= not match and bool(_PLACED.search(text))
    report.no_adapter |= "NET/IB : No device found" in text
    report.peers_disabled |= "P2P is disabled between" in text
    if level == "WARN" and text not in report.warnings:
        report.warnings.append(text)
    return int(rank["rank"]) if rank and not alone else None


def _plugin_of_aws(report: FabricReport, text: str) -> None:
    if provider := _PROVIDER.search(text):
        report.provider = provider[1]
    if platform := _PLATFORM.search(text):
        report.platform = platform[1]
    if match := _ADAPTER_COUNT.search(text):
        report.cards = max(report.cards, int(match[1]))
