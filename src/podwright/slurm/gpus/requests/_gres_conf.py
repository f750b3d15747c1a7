"""gres.conf: the socket of each GPU of a node by number, its type, shares and links."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._units import is_number, names
from podwright.slurm.gpus.requests._values import EVERY_SOCKET

_PAIR = re.compile(r"(\w+)=(\"[^\"]*\"|\S+)")


@dataclass
class Gpus:
    """What gres.conf says of a node's GPUs; `complete` where it says it of all of them."""

    types: list[str] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)
    names_cores: list[bool] = field(default_factory=list)
    links: list[tuple[int, ...]] = field(default_factory=list)
    shards: dict[int, int] = field(default_factory=dict)
    mps: dict[int, int] = field(default_factory=dict)
    even: dict[str, int] = field(default_factory=dict)  # shares without a File=
    detected: bool = False
    partly: bool = False  # cores of several sockets, but not of all

    def shares(self, name: str) -> tuple[int, ...]:
        """Shares of each GPU."""
        said = self.shards if name == "shard" else self.mps
        count = len(self.types)
        if said:
            return tuple(said.get(gpu, 0) for gpu in range(count))
        total = self.even.get(name, 0)
        if not total or not count:
            return ()
        each, more = divmod(total, count)
        return tuple(each + (gpu < more) for gpu in range(count))


def lines_of(text: str) -> list[dict[str, str]]:
    """Every line as its pairs, keys in lower case."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        pairs = {k.lower(): v.strip('"') for k, v in _PAIR.findall(line.partition("#")[0])}
        if pairs:
            found.append(pairs)
    return found


def numbers(text: str) -> list[int]:
    """0, 1, 4 of `0-1,4`."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if is_number(low) and (not dash or is_number(high)):
            found += range(int(low), int(high or low) + 1)
    return found


def gpus_of(rows: list[dict[str, str]], node: str, sockets: int, cores: int) -> Gpus:
    """The GPUs of one node. cores: of a socket."""
    found = Gpus()
    files: dict[str, int] = {}
    for row in rows:
        if "nodename" in row and node not in names(row["nodename"]):
            continue
        detect = row.get("autodetect", "")
        if detect and detect.lower() != "off":
            found.detected = True
        name = row.get("name", "")
        if name == "gpu":
            _gpu(found, row, files, sockets, cores)
        elif name in ("shard", "mps"):
            _shared(found, row, name, files)
    return found


def _devices(row: dict[str, str]) -> list[str]:
    if "multiplefiles" in row:
        return [row["multiplefiles"]]
    if "file" in row:
        return list(names(row["file"]))
    return [""] * int(row.get("count", "1")) if is_number(row.get("count", "1")) else []


def _gpu(found: Gpus, row: dict[str, str], files: dict[str, int], sockets: int, cores: int) -> None:
    devices = _devices(row)
    named = row.get("cores", row.get("cpus", ""))
    on = sorted({core // max(cores, 1) for core in numbers(named)}) if named else []
    socket = EVERY_SOCKET if not on or len(on) >= sockets else on[0]
    found.partly = found.partly or 1 < len(on) < sockets
    links = tuple(int(n) for n in row.get("links", "").split(",") if is_number(n.lstrip("-")))
    for device in devices:
        files.setdefault(device, len(found.types))
        found.types.append(row.get("type", ""))
        found.beside.append(socket)
        found.names_cores.append(bool(on))
        found.links.append(links)


def _shared(found: Gpus, row: dict[str, str], name: str, files: dict[str, int]) -> None:
    count = int(row.get("count", "0")) if is_number(row.get("count", "0")) else 0
    if "file" not in row:
        found.even[name] = found.even.get(name, 0) + count
        return
    said = found.shards if name == "shard" else found.mps
    some = [files[device] for device in _devices(row) if device in files]
    for gpu in some:
        said[gpu] = said.get(gpu, 0) + count // max(len(some), 1)
