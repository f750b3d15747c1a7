"""Reads the log that NCCL writes with NCCL_DEBUG=INFO, of versions 2.4 to 2.28.

The lines changed over the years: a channel was `Channel 00 :` and became `Channel 00/0 :`,
a rank was followed by its bus id (`0[1a000]`) and now by its device (`0[0]`), shared memory was
`direct shared memory` and is `SHM/direct/direct`, peers were `P2P/IPC` and are `P2P/CUMEM`.
What stays is `A[x] -> B[y] … via WHAT`. Whatever stands before `NCCL` (mpirun's tags, times) is
no matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from podwright.slurm.requests import invalid

_LINE = re.compile(
    r"(?P<host>[^\s:>|\]]+):(?P<pid>\d+):(?P<tid>\d+)\s+\[(?P<device>-?\d+)\]\s+"
    r"(?:\S+\s+)?NCCL\s+(?P<level>INFO|WARN)\s+(?P<text>.*)"
)
_HOP = re.compile(
    r"Channel\s+(?P<channel>\d+)(?:/\d+)?\s*:\s*(?P<a>\d+)\s*\[[0-9a-f:.]+\]\s*->\s*"
    r"(?P<b>\d+)\s*\[[0-9a-f:.]+\]\s*(?:\[(?P<way>send|receive)\]\s*)?via\s+(?P<via>.+?)"
    r"(?:\s+comm\s+0x[0-9a-f]+.*)?$"
)
_RANK = re.compile(r"comm 0x[0-9a-f]+ rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]+) set by environment to (.*?)\.?\s*$")
_NETWORK = re.compile(r"Using network (.+?)\s*$")
_ADAPTERS = re.compile(r"\[\d+\]([A-Za-z][\w.-]*):\d+/(?:IB|RoCE)")
_OFF = re.compile(r"GPU Direct RDMA Disabled for HCA \d+ '?([\w.-]+)'?")
_PLACED = re.compile(r"GPU Direct RDMA Disabled for GPU .*?/ HCA (\w+)")


@dataclass
class Pair:
    """Two ranks and what carried their data: P2P, SHM, NET/IB, NET/Socket, COLLNET …"""

    a: int
    b: int
    transport: str
    gpudirect: bool
    detail: str
    channels: int = 0


@dataclass
class Report:
    """All that the log says. `hosts` maps ranks to host names where the log tells."""

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

    def between_hosts(self, pair: Pair) -> bool:
        """Whether the two ranks are known to be on different hosts, or used the network."""
        a, b = self.hosts.get(pair.a), self.hosts.get(pair.b)
        return a != b if a and b else pair.transport.startswith(("NET/", "COLLNET"))


def transport_of(via: str) -> tuple[str, bool]:
    """(transport, GPUDirect RDMA) of the words after `via`."""
    if "shared memory" in via:
        return "SHM", False
    words = via.split("/")
    if words[0] in ("P2P", "SHM"):
        return words[0], False
    if words[0] in ("NET", "COLLNET", "RMA") and len(words) > 1:
        name = re.sub(r"\(\d+\)$", "", words[1]).strip()
        return f"{words[0]}/{'IB' if name.startswith('IB') else name}", "GDRDMA" in words
    return words[0], "GDRDMA" in words


def read_log(lines: Iterable[str]) -> Report:
    """The report of one log, or of several joined; InvalidRequest where NCCL says nothing."""
    report = Report()
    found: dict[tuple[int, int, str, bool], tuple[Pair, set[str]]] = {}
    spoke = False
    for line in lines:
        if "NCCL" not in line:
            continue
        version = _VERSION.search(line)
        if version:
            spoke, report.version = True, version[1]
        match = _LINE.search(line)
        if not match:
            continue
        spoke = True
        text = match["text"].strip()
        hop = _HOP.search(text)
        if hop:
            _add(report, found, hop, match["host"])
        else:
            _note(report, text, match["host"], match["level"])
    if not spoke:
        raise invalid(
            "no line of NCCL in this log",
            would_work="Run the job with NCCL_DEBUG=INFO and give its output",
        )
    for pair, channels in found.values():
        pair.channels = len(channels)
        report.pairs.append(pair)
    report.pairs.sort(key=lambda p: (p.a, p.b, p.transport))
    report.ranks = max([report.ranks, *(p.b + 1 for p in report.pairs), *report.hosts, 0])
    return report


def _add(
    report: Report,
    found: dict[tuple[int, int, str, bool], tuple[Pair, set[str]]],
    hop: re.Match[str],
    host: str,
) -> None:
    a, b = int(hop["a"]), int(hop["b"])
    speaker = b if hop["way"] == "receive" else a
    report.hosts.setdefault(speaker, host)
    transport, gpudirect = transport_of(hop["via"].strip())
    low, high = min(a, b), max(a, b)
    key = (low, high, transport, gpudirect)
    if key not in found:
        found[key] = (Pair(low, high, transport, gpudirect, hop["via"].strip()), set())
    found[key][1].add(hop["channel"])


def _note(report: Report, text: str, host: str, level: str) -> None:
    rank = _RANK.search(text)
    if rank:
        report.hosts.setdefault(int(rank["rank"]), host)
        report.ranks = max(report.ranks, int(rank["ranks"]))
    setting = _SETTING.search(text)
    if setting:
        report.settings[setting[1]] = setting[2]
    network = _NETWORK.search(text)
    if network and network[1] not in report.networks:
        report.networks.append(network[1])
    if "NET/IB" in text and "Using" in text:
        report.adapters += [a for a in _ADAPTERS.findall(text) if a not in report.adapters]
    off = _OFF.search(text)
    if off and off[1] not in report.gpudirect_off:
        report.gpudirect_off.append(off[1])
    report.gpudirect_far |= bool(_PLACED.search(text))
    report.no_adapter |= "NET/IB : No device found" in text
    report.peers_disabled |= "P2P is disabled between" in text
    if level == "WARN" and text not in report.warnings:
        report.warnings.append(text)
