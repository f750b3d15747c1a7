"""The V-IPU controllers that partitions come from, each with the nodes that reach its IPUs.

Graphcore's chart names them `HOST:PORT:LABEL=VALUE`, separated by commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest

_SITES_SYNTAX_HINT = "HOST:PORT or HOST:PORT:LABEL=VALUE, several with commas between; or unix:PATH"


class VipuSite(NamedTuple):
    """A V-IPU controller.

    host, port: where it answers; or socket: a Unix socket on this machine. label, value: of the
    nodes that reach its devices; empty: all nodes do. seen_as: its address for programs in pods,
    where that differs.
    """

    host: str = ""
    port: int = 8090
    label: str = ""
    value: str = ""
    socket: str = ""
    seen_as: str = ""

    @property
    def name(self) -> str:
        """A name for people."""
        return self.socket or f"{self.host}:{self.port}"

    @property
    def selector(self) -> dict[str, str]:
        """The labels of its nodes."""
        return {self.label: self.value} if self.label else {}

    def fits(self, node_selector: Mapping[str, str]) -> bool:
        """Return whether a pod with this node selector can run on a node of this controller."""
        return not self.label or node_selector.get(self.label, self.value) == self.value


def read_sites(sites_text: str, seen_as: str = "") -> tuple[VipuSite, ...]:
    """Return the controllers in such a line. Raises InvalidRequest."""
    sites = []
    for site_text in filter(None, (site_text.strip() for site_text in sites_text.split(","))):
        if site_text.startswith("unix:"):
            sites.append(VipuSite(socket=site_text.removeprefix("unix:"), seen_as=seen_as))
            continue
        address_parts = site_text.split(":", 2)
        node_label, _, label_value = (address_parts[2] if len(address_parts) > 2 else "").partition(
            "="
        )
        port_text = address_parts[1] if len(address_parts) > 1 else "8090"
        if not (address_parts[0] and port_text.isdecimal() and 0 < int(port_text) < 65536) or bool(
            node_label
        ) != bool(label_value):
            raise InvalidRequest(
                f"{site_text[:80]!r} names no V-IPU controller", would_work=_SITES_SYNTAX_HINT
            )
        sites.append(
            VipuSite(address_parts[0], int(port_text), node_label, label_value, seen_as=seen_as)
        )
    if not sites:
        raise InvalidRequest("no V-IPU controller is named", would_work=_SITES_SYNTAX_HINT)
    return tuple(sites)


def program_environment(site: VipuSite, partition: str, *, simulated: bool) -> dict[str, str]:
    """Return the variables that tell a program in a pod where its devices are."""
    host, _, port = site.seen_as.rpartition(":") if site.seen_as else (site.host, "", "")
    variables = {"IPUOF_VIPU_API_PARTITION_ID": partition}
    if host:
        variables["IPUOF_VIPU_API_HOST"] = host
        variables["IPUOF_VIPU_API_PORT"] = port or str(site.port)
    if simulated:
        variables["PODWRIGHT_SIMULATED"] = "1"
    return variables
