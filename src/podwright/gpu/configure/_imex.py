"""Writes the node files of NVIDIA's IMEX daemon: one address per line, the same file on all nodes
of an NVLink domain.

Each domain of several nodes has a file beside slurm.conf. NVIDIA documents nothing but addresses in
these files, so they carry no mark of ours: a comment in gres.conf lists the files that are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.configure._edit_conf_lines import OWN_LINE_SUFFIX, each, names_in
from podwright.gpu.configure._inventory import SiteInventory
from podwright.hosts import fold_names
from podwright.slurm.site.conf_lines import logical_lines, read_row, value

#: The path that the daemon reads (NVIDIA's IMEX guide, IMEX_NODE_CONFIG_FILE).
NODES_CONFIG_PATH = "/etc/nvidia-imex/nodes_config.cfg"
_NODE_FILE_MARK = "# Nodes of an NVLink domain, for nvidia-imex: "


def imex_texts(
    etc_folder: Path, slurm_conf: str, inventory: SiteInventory, resolve: Callable[[str], str]
) -> dict[Path, str]:
    """The text of each file, by path. resolve: returns the address of a name, or an empty string.
    Raises InvalidRequest."""
    domains = {name: names for name, names in inventory.domains.items() if len(names) > 1}
    if not domains:
        raise InvalidRequest(
            "the inventory names no NVLink domain of several nodes",
            operation="--imex",
            would_work='domain = "rack1" at the nodes of a rack; a survey finds it',
        )
    address_by_node = _addresses_by_node(slurm_conf, etc_folder)
    own_paths = known(etc_folder)
    texts_by_path = {}
    for domain, node_names in domains.items():
        node_file = etc_folder / f"imex-{domain}.cfg"
        if node_file.exists() and node_file not in own_paths:
            raise InvalidRequest(
                f"{node_file} is there, and not ours", operation="--imex", would_work="move it away"
            )
        texts_by_path[node_file] = "".join(
            f"{_node_address(node, address_by_node, resolve)}\n" for node in node_names
        )
    return texts_by_path


def known(etc_folder: Path) -> list[Path]:
    """The files that gres.conf lists as ours."""
    conf = etc_folder / "gres.conf"
    if not conf.exists():
        return []
    lines = conf.read_text("utf-8", "surrogateescape").splitlines()
    return [
        etc_folder / Path(line.removeprefix(_NODE_FILE_MARK).removesuffix(OWN_LINE_SUFFIX)).name
        for line in lines
        if line.startswith(_NODE_FILE_MARK) and line.endswith(OWN_LINE_SUFFIX)
    ]


def node_files_remark(node_files: Sequence[Path]) -> str:
    """The comment in gres.conf that lists these files."""
    return "".join(f"{_NODE_FILE_MARK}{file.name}{OWN_LINE_SUFFIX}\n" for file in node_files)


def notes(node_files: Sequence[Path], inventory: SiteInventory) -> list[str]:
    """The steps that remain for the administrator."""
    return [
        f"{file} belongs at {NODES_CONFIG_PATH} of {fold_names(names)}, or into "
        "IMEX_NODE_CONFIG_FILE "
        "there; then restart nvidia-imex"
        for file in node_files
        for domain, names in inventory.domains.items()
        if file.name == f"imex-{domain}.cfg"
    ]


def resolve_host(host_name: str) -> str:
    """The address to which a name resolves on this machine, IPv4 before IPv6; empty where there is
    none."""
    import socket

    try:
        addresses = socket.getaddrinfo(host_name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    addresses.sort(key=lambda address_entry: address_entry[0] != socket.AF_INET)
    return str(addresses[0][4][0]) if addresses else ""


def _addresses_by_node(slurm_conf: str, etc_folder: Path) -> dict[str, str]:
    """The NodeAddr of each node that has one."""
    address_by_node: dict[str, str] = {}
    for _, line in logical_lines(slurm_conf):
        row = read_row(line)
        node_list, address_list = value(row, "NodeName"), value(row, "NodeAddr")
        if node_list and address_list and node_list.upper() != "DEFAULT":
            names = names_in(node_list, str(etc_folder / "slurm.conf"))
            addresses = each("NodeAddr", address_list, len(names)) or [address_list] * len(names)
            address_by_node.update(zip(names, addresses, strict=True))
    return address_by_node


def _node_address(
    node_name: str, address_by_node: dict[str, str], resolve: Callable[[str], str]
) -> str:
    host_name = address_by_node.get(node_name, node_name)
    address = resolve(host_name)
    if not address or address.startswith("127.") or address == "::1":
        problem = f"is {address} to this machine alone" if address else "has no address"
        raise InvalidRequest(
            f"node {node_name} {problem}",
            operation="--imex",
            would_work=f"NodeAddr in the line of {node_name} in slurm.conf, or a name that can be "
            "looked up",
        )
    return address
