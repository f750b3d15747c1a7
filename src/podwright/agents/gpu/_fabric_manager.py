"""NVLink partitions of a node with NVSwitch, through Fabric Manager's shared NVSwitch mode.

Fabric Manager has a fixed list of partitions, of which some are active; GPUs reach each other over
the switches only inside an active one. It is spoken to through NVIDIA's command `fmpm`
(Fabric-Manager-Client): its library's structures differ from version to version, the command's
JSON does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.agents.gpu._reset import run
from podwright.hosts.gpus import Gpu
from podwright.wire import Internal, InvalidRequest


class _Member(msgspec.Struct, frozen=True):
    physicalId: int
    uuid: str = ""
    pciBusId: str = ""


class _Listed(msgspec.Struct, frozen=True):
    partitionId: int
    isActive: int
    gpuInfo: tuple[_Member, ...]


class _List(msgspec.Struct, frozen=True):
    partitionInfo: tuple[_Listed, ...] = ()


class Supported(NamedTuple):
    """One partition that Fabric Manager can make. gpus: indices of the GPUs here."""

    id: int
    active: bool
    gpus: frozenset[int]


class FabricManager:
    """A Guard. command: `fmpm` with what leads to the daemon. gpus: all of the machine's."""

    def __init__(
        self, command: Sequence[str], gpus: Sequence[Gpu], environ: Mapping[str, str]
    ) -> None:
        self._command = list(command)
        self._gpus = tuple(gpus)
        self._environ = dict(environ)

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        self._named(gpus, self.supported())

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        known = self.supported()
        wanted = self._named(gpus, known)
        for other in known:
            if other.active and other.id != wanted.id and other.gpus & wanted.gpus:
                self._tell("-d", other.id)
        if not wanted.active:
            self._tell("-a", wanted.id)

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        indices = {gpu.index for gpu in gpus}
        for other in self.supported():
            if other.active and other.gpus & indices:
                self._tell("-d", other.id)

    def supported(self) -> list[Supported]:
        """What there is. Raises wire.Internal."""
        text = run([*self._command, "-l"], self._environ)
        try:
            listed = msgspec.json.decode(text, type=_List)
        except msgspec.MsgspecError as error:
            raise Internal(f"fmpm -l prints no list of partitions: {error}") from None
        return [
            Supported(one.partitionId, bool(one.isActive), frozenset(map(self._index, one.gpuInfo)))
            for one in listed.partitionInfo
        ]

    def _index(self, member: _Member) -> int:
        """Which GPU of this machine that is. Inactive partitions may tell its module alone."""
        for gpu in self._gpus:
            if member.uuid and member.uuid == gpu.uuid:
                return gpu.index
            if member.pciBusId and member.pciBusId.lower().endswith(gpu.bus[4:]):
                return gpu.index
            if gpu.module == member.physicalId:
                return gpu.index
        raise Internal(f"Fabric Manager tells of a GPU module {member.physicalId} that is not here")

    def _named(self, gpus: Sequence[Gpu], known: Sequence[Supported]) -> Supported:
        indices = frozenset(gpu.index for gpu in gpus)
        for one in known:
            if one.gpus == indices:
                return one
        sets = sorted(sorted(one.gpus) for one in known if len(one.gpus) == len(indices))
        shown = ", ".join("-".join(map(str, (one[0], one[-1]))) for one in sets[:8])
        raise InvalidRequest(
            f"Fabric Manager has no partition of GPUs {', '.join(map(str, sorted(indices)))}",
            would_work=f"with {len(indices)} GPUs: {shown}" if shown else "another size",
        )

    def _tell(self, option: str, number: int) -> None:
        run([*self._command, option, str(number)], self._environ)
