"""Writes the node files of NVIDIA's IMEX daemon: one address per line, the same file on all nodes
of an NVLink domain.

Each domain of several nodes has a file beside slurm.conf. NVIDIA documents nothing but addresses in
these files, so they carry no mark of ours: a comment in gres.conf lists the files that are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.configure._inventory import SiteInventory
from podwright.gpu.configure._lines import (
    OURS,
    each,
    fold,
    logical,
    names_in,
    read_row,
    value,
)

#: The path that the daemon reads (NVIDIA's IMEX guide, IMEX_NODE_CONFIG_FILE).
PLACE = "/etc/nvidia-imex/nodes_config.cfg"
_NODE_FILE_MARK = "# Nodes of an NVLink domain, for nvidia-imex: "


def imex_texts(
    etc: Path, slurm_conf: str, inventory: SiteInventory, resolve: Callable[[str], str]
) -> dict[Path, str]:
    """The text of each file, by path. resolve: returns the address of a name, or an empty string.
    Raises InvalidRequest."""
    domains = {name: nodes for name, nodes in inventory.domains.items() if len(nodes) > 1}
    if not domains:
        raise InvalidRequest(
            "the inventory names no NVLink domain of several nodes",
            operation="--imex",
            would_work='domain = "rack1" at the nodes of a rack; a survey finds it',
        )
    addresses = _addresses(slurm_conf, etc)
    ours = known(etc)
    texts = {}
    for domain, nodes in domains.items():
        path = etc / f"imex-{domain}.cfg"
        if path.exists() and path not in ours:
            raise InvalidRequest(
                f"{path} is there, and not ours", operation="--imex", would_work="move it away"
            )
        texts[path] = "".join(f"{_address(node, addresses, resolve)}\n" for node in nodes)
    return texts


def known(etc: Path) -> list[Path]:
    """The files that gres.conf lists as ours."""
    gres = etc / "gres.conf"
    if not gres.exists():
        return []
    lines = gres.read_text("utf-8", "surrogateescape").splitlines()
    return [
        etc / Path(line.removeprefix(_NODE_FILE_MARK).removesuffix(OURS)).name
        for line in lines
        if line.startswith(_NODE_FILE_MARK) and line.endswith(OURS)
    ]


def remark(paths: Sequence[Path]) -> str:
    """The comment in gres.conf that lists these files."""
    return "".join(f"{_NODE_FILE_MARK}{path.name}{OURS}\n" for path in paths)


def notes(texts: Sequence[Path], inventory: SiteInventory) -> list[str]:
    """The steps that remain for the administrator."""
    return [
        f"{path} belongs at {PLACE} of {fold(nodes)}, or into IMEX_NODE_CONFIG_FILE there; "
        "then restart nvidia-imex"
        for path in texts
        for domain, nodes in inventory.domains.items()
        if path.name == f"imex-{domain}.cfg"
    ]


def resolved(name: str) -> str:
    """The address to which a name resolves on this machine, IPv4 before IPv6; empty where there is
    none."""
    import socket

    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    addresses.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(addresses[0][4][0]) if addresses else ""


def _addresses(slurm_conf: str, etc: Path) -> dict[str, str]:
    """The NodeAddr of each node that has one."""
    by_node: dict[str, str] = {}
    for _, line in logical(slurm_conf):
        row = read_row(line)
        names, addresses = value(row, "NodeName"), value(row, "NodeAddr")
        if names and addresses and names.upper() != "DEFAULT":
            those = names_in(names, str(etc / "slurm.conf"))
            several = each("NodeAddr", addresses, len(those)) or [addresses] * len(those)
            by_node.update(zip(those, several, strict=True))
    return by_node


def _address(node: str, addresses: dict[str, str], resolve: Callable[[str], str]) -> str:
    name = addresses.get(node, node)
    address = resolve(name)
    if not address or address.startswith("127.") or address == "::1":
        address_problem = f"is {address} to this machine alone" if address else "has no address"
        raise InvalidRequest(
            f"node {node} {address_problem}",
            operation="--imex",
            would_work=f"NodeAddr in the line of {node} in slurm.conf, or a name that can be "
            "looked up",
        )
    return address
