"""Who is in an NVLink domain, for NVIDIA's IMEX daemon: an address a line, the same on all nodes.

A file for each domain of several nodes, beside slurm.conf. What the daemon reads besides addresses
is not documented, so no mark of ours is in them: gres.conf says in a comment which are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.slurm.gpus.configure._inventory import SiteInventory
from podwright.slurm.gpus.configure._lines import (
    OURS,
    each,
    fold,
    logical,
    names_in,
    read_row,
    value,
)

#: Where the daemon looks (NVIDIA's IMEX guide, IMEX_NODE_CONFIG_FILE).
PLACE = "/etc/nvidia-imex/nodes_config.cfg"
_SAYS = "# Nodes of an NVLink domain, for nvidia-imex: "


def imex_texts(
    etc: Path, slurm_conf: str, inventory: SiteInventory, resolve: Callable[[str], str]
) -> dict[Path, str]:
    """The files. resolve: the address of a name, empty for none. Raises InvalidRequest."""
    domains = {name: nodes for name, nodes in inventory.domains.items() if len(nodes) > 1}
    if not domains:
        raise InvalidRequest(
            "the inventory names no NVLink domain of several nodes",
            asked="--imex",
            would_work='domain = "rack1" at the nodes of a rack; a survey finds it',
        )
    said = _addresses(slurm_conf, etc)
    ours = known(etc)
    found = {}
    for domain, nodes in domains.items():
        path = etc / f"imex-{domain}.cfg"
        if path.exists() and path not in ours:
            raise InvalidRequest(
                f"{path} is there, and not ours", asked="--imex", would_work="move it away"
            )
        found[path] = "".join(f"{_address(node, said, resolve)}\n" for node in nodes)
    return found


def known(etc: Path) -> list[Path]:
    """The files that gres.conf says are ours."""
    gres = etc / "gres.conf"
    if not gres.exists():
        return []
    lines = gres.read_text("utf-8", "surrogateescape").splitlines()
    return [
        etc / Path(line.removeprefix(_SAYS).removesuffix(OURS)).name
        for line in lines
        if line.startswith(_SAYS) and line.endswith(OURS)
    ]


def remark(paths: Sequence[Path]) -> str:
    """What gres.conf says of them."""
    return "".join(f"{_SAYS}{path.name}{OURS}\n" for path in paths)


def notes(texts: Sequence[Path], inventory: SiteInventory) -> list[str]:
    """What remains to be done with them."""
    return [
        f"{path} belongs at {PLACE} of {fold(nodes)}, or into IMEX_NODE_CONFIG_FILE there; "
        "then restart nvidia-imex"
        for path in texts
        for domain, nodes in inventory.domains.items()
        if path.name == f"imex-{domain}.cfg"
    ]


def resolved(name: str) -> str:
    """The address that a name has here, IPv4 before IPv6; empty for none."""
    import socket

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return str(found[0][4][0]) if found else ""


def _addresses(slurm_conf: str, etc: Path) -> dict[str, str]:
    """The NodeAddr of the nodes that have one."""
    found: dict[str, str] = {}
    for _, said in logical(slurm_conf):
        row = read_row(said)
        names, addresses = value(row, "NodeName"), value(row, "NodeAddr")
        if names and addresses and names.upper() != "DEFAULT":
            those = names_in(names, str(etc / "slurm.conf"))
            several = each("NodeAddr", addresses, len(those)) or [addresses] * len(those)
            found.update(zip(those, several, strict=True))
    return found


def _address(node: str, said: dict[str, str], resolve: Callable[[str], str]) -> str:
    name = said.get(node, node)
    address = resolve(name)
    if not address or address.startswith("127.") or address == "::1":
        has = f"is {address} to this machine alone" if address else "has no address"
        raise InvalidRequest(
            f"node {node} {has}",
            asked="--imex",
            would_work=f"NodeAddr in the line of {node} in slurm.conf, or a name that can be "
            "looked up",
        )
    return address
