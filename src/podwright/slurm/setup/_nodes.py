"""Where a site's nodes are, by its slurm.conf: whether steps there reach the service beside
slurmctld by its Unix socket, or need an address. Reads files, changes none."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podwright.hosts import HostsError, expand
from podwright.slurm.setup._edit import settings

#: Where `slurm serve` listens for steps on other hosts, if nobody says otherwise.
PORT: Final = 8092
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DEPTH: Final = 8


def lines(path: Path, depth: int = _DEPTH) -> Iterator[str]:
    """The lines of a slurm.conf and of what it includes; continued ones as one."""
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError:
        return
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0].lower() == "include" and depth:
            yield from lines(path.parent / words[1], depth - 1)
        elif words:
            yield " ".join(words)


def far_door(slurm_conf: Path) -> str:
    """HOST:PORT where steps on other hosts can reach the service, as they name slurmctld's host;
    empty where all nodes are on that very host."""
    text = "\n".join(lines(slurm_conf))
    controller = settings(text).get("slurmctldhost", "")
    name, _, rest = controller.partition("(")
    address = rest.rstrip(")") or name
    here = _LOCAL | {name, address, socket.gethostname(), socket.gethostname().partition(".")[0]}
    nodes = [node for line in text.splitlines() for node in _addresses(line)]
    if not name or (nodes and here.issuperset(nodes)):
        return ""
    return f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"


def munge_socket(slurm_conf: Path) -> str:
    """MUNGE's socket, where AuthInfo names one."""
    said = settings("\n".join(lines(slurm_conf))).get("authinfo", "")
    return next((word[7:] for word in said.split(",") if word.startswith("socket=")), "")


def _addresses(line: str) -> list[str]:
    """Where the nodes of a line are; none for other lines."""
    pairs = (word.partition("=") for word in line.split())
    words = {key.lower(): value for key, _, value in pairs}
    name = words.get("nodename", "")
    if not name or name.upper() == "DEFAULT":
        return []
    try:
        return list(expand(words.get("nodeaddr") or words.get("nodehostname") or name))
    except HostsError:
        return [name]
