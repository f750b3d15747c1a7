"""The shape of this site's nodes, out of what `scontrol` says, where there is a Slurm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from podwright.slurm.requests._options import Version, parse_version
from podwright.slurm.requests._values import Shape

Ask = Callable[[list[str]], str]
_GPU = re.compile(r"gpu(?::([^:(,]+))??:(\d+)")


def read_kinds(gres: str) -> dict[str, int]:
    """How many GPUs of each type a node's Gres names; the type is empty where it names none."""
    found: dict[str, int] = {}
    for kind, count in _GPU.findall(gres):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def read_shape(nodes: str, config: str, partition: str = "") -> Shape | None:
    """The commonest shape among nodes with GPUs (of one partition); None where there are none.

    nodes: output of `scontrol --oneliner show node`; config: of `scontrol show config`.
    """
    counted: Counter[tuple[int, int, int, tuple[str, ...]]] = Counter()
    for row in nodes.splitlines():
        fields = dict(word.split("=", 1) for word in row.split() if "=" in word)
        gpus = _GPU.findall(fields.get("Gres", ""))
        if not gpus or (partition and partition not in fields.get("Partitions", "").split(",")):
            continue
        kinds = tuple(sorted(kind for kind, _ in gpus if kind))
        count = sum(int(number) for _, number in gpus)
        sockets = int(fields.get("Sockets", "1"))
        counted[(sockets, int(fields.get("CoresPerSocket", "1")), count, kinds)] += 1
    if not counted:
        return None
    (sockets, cores, count, kinds), nodes_alike = counted.most_common(1)[0]
    affinity = re.search(r"^TaskPlugin\s*=.*\baffinity", config, re.M)
    confined = re.search(r"^ConstrainDevices\s*=\s*yes", config, re.M | re.I)
    return Shape(
        nodes=nodes_alike,
        sockets=sockets,
        cores_per_socket=cores,
        gpus=count,
        kinds=kinds,
        confined=bool(confined),
        affinity=bool(affinity),
    )


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
