"""The shape of this site's nodes, out of what `scontrol` says, where there is a Slurm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from podwright.slurm.requests._options import Version, parse_version
from podwright.slurm.requests._values import EVERY_SOCKET, Shape

Ask = Callable[[list[str]], str]
_GPU = re.compile(r"gpu(?::([^:(,]+))??:(\d+)(?:\(S:([\d,-]+)\))?")


def read_kinds(gres: str) -> dict[str, int]:
    """How many GPUs of each type a node's Gres names; the type is empty where it names none."""
    found: dict[str, int] = {}
    for kind, count, _ in _GPU.findall(gres):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def read_shape(nodes: str, config: str, partition: str = "") -> Shape | None:
    """The commonest shape among nodes with GPUs (of one partition); None where there are none.

    nodes: output of `scontrol --oneliner show node`; config: of `scontrol show config`.
    """
    counted: Counter[tuple[int, int, str]] = Counter()
    for row in nodes.splitlines():
        fields = dict(word.split("=", 1) for word in row.split() if "=" in word)
        gres = fields.get("Gres", "")
        if not _GPU.search(gres):
            continue
        if partition and partition not in fields.get("Partitions", "").split(","):
            continue
        sockets = int(fields.get("Sockets", "1"))
        counted[(sockets, int(fields.get("CoresPerSocket", "1")), gres)] += 1
    if not counted:
        return None
    (sockets, cores, gres), nodes_alike = counted.most_common(1)[0]
    affinity = re.search(r"^TaskPlugin\s*=.*\baffinity", config, re.M)
    confined = re.search(r"^ConstrainDevices\s*=\s*yes", config, re.M | re.I)
    types, beside = _each_gpu(gres, sockets)
    kinds = tuple(sorted({kind for kind in types if kind}))
    evenly = beside == _evenly(len(types), sockets)
    return Shape(
        nodes=nodes_alike,
        sockets=sockets,
        cores_per_socket=cores,
        gpus=len(types),
        kinds=kinds,
        confined=bool(confined),
        affinity=bool(affinity),
        beside=() if evenly else beside,
        types=types if len(set(types)) > 1 else (),
    )


def _each_gpu(gres: str, sockets: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Type and socket of every GPU, in the order of Gres; of several sockets each has its share."""
    types: list[str] = []
    beside: list[int] = []
    for kind, number, named in _GPU.findall(gres):
        count = int(number)
        types += [kind] * count
        on = _sockets(named, sockets)
        beside += [on[at] for at in _evenly(count, len(on))] if on else [EVERY_SOCKET] * count
    return tuple(types), tuple(beside)


def _sockets(named: str, sockets: int) -> list[int]:
    """The sockets of `S:0-1`; none where gres.conf names no cores."""
    found: list[int] = []
    for part in named.split(",") if named else []:
        low, _, high = part.partition("-")
        found += range(int(low), min(int(high or low), sockets - 1) + 1)
    return found


def _evenly(gpus: int, sockets: int) -> tuple[int, ...]:
    share, more = divmod(gpus, sockets)
    return tuple(at for at in range(sockets) for _ in range(share + (at < more)))


def read_version(config: str) -> Version | None:
    """SLURM_VERSION in the output of `scontrol show config`."""
    found = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", config, re.M)
    return parse_version(found[1]) if found else None


def ask_slurm(words: list[str]) -> str:
    """The output of a Slurm command, empty where there is none or it does not answer."""
    import shutil
    import subprocess

    if not shutil.which(words[0]):
        return ""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def site(ask: Ask = ask_slurm, partition: str = "") -> tuple[Shape | None, Version | None]:
    """(shape, version) of the Slurm that this machine belongs to; None for what is not known."""
    config = ask(["scontrol", "show", "config"])
    if not config:
        return None, None
    nodes = ask(["scontrol", "--oneliner", "show", "node"])
    return read_shape(nodes, config, partition), read_version(config)
