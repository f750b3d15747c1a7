"""The V-IPU controllers that partitions come from, each with the nodes that reach its IPUs.

Graphcore's chart names them `HOST:PORT:LABEL=VALUE`, separated by commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest

_WOULD_WORK = "HOST:PORT or HOST:PORT:LABEL=VALUE, several with commas between; or unix:PATH"


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

    def fits(self, selector: Mapping[str, str]) -> bool:
        """Return whether a pod with this node selector can run on a node of this controller."""
        return not self.label or selector.get(self.label, self.value) == self.value


def read_sites(text: str, seen_as: str = "") -> tuple[VipuSite, ...]:
    """Return the controllers in such a line. Raises InvalidRequest."""
    out = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part.startswith("unix:"):
            out.append(VipuSite(socket=part.removeprefix("unix:"), seen_as=seen_as))
            continue
        pieces = part.split(":", 2)
        label, _, value = (pieces[2] if len(pieces) > 2 else "").partition("=")
        port = pieces[1] if len(pieces) > 1 else "8090"
        if not (pieces[0] and port.isdecimal() and 0 < int(port) < 65536) or bool(label) != bool(
            value
        ):
            raise InvalidRequest(f"{part[:80]!r} names no V-IPU controller", would_work=_WOULD_WORK)
        out.append(VipuSite(pieces[0], int(port), label, value, seen_as=seen_as))
    if not out:
        raise InvalidRequest("no V-IPU controller is named", would_work=_WOULD_WORK)
    return tuple(out)


def program_environment(site: VipuSite, partition: str, *, simulated: bool) -> dict[str, str]:
    """Return the variables that tell a program in a pod where its devices are."""
    host, _, port = site.seen_as.rpartition(":") if site.seen_as else (site.host, "", "")
    out = {"IPUOF_VIPU_API_PARTITION_ID": partition}
    if host:
        out["IPUOF_VIPU_API_HOST"] = host
        out["IPUOF_VIPU_API_PORT"] = port or str(site.port)
    if simulated:
        out["PODWRIGHT_SIMULATED"] = "1"
    return out
