"""NVLink partitions of a node with NVSwitch, through Fabric Manager's shared NVSwitch mode.

Fabric Manager has a fixed list of partitions, of which some are active; GPUs reach each other over
the switches only inside an active one. It is spoken to through NVIDIA's command `fmpm`
(Fabric-Manager-Client): its library's structures differ from version to version, the command's
JSON does not.

One that was restarted in its restart mode (FABRIC_MODE_RESTART=1) goes on forwarding, but knows of
no active partition, and makes none, until it is given their list. That is done at the next look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.agents.gpu._guards import HeldPartition
from podwright.agents.gpu._reset import run
from podwright.errors import Internal, InvalidRequest
from podwright.hosts.gpus import Gpu

_log = logging.getLogger("podwright.agent")


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
    """A Guard and a Keeper. command: `fmpm` with what leads to the daemon. gpus: all of the
    machine's, in their order."""

    def __init__(
        self, command: Sequence[str], gpus: Sequence[Gpu], environ: Mapping[str, str]
    ) -> None:
        self._command = list(command)
        self._gpus = tuple(gpus)
        self._at = {gpu.uuid: gpu.index for gpu in gpus}
        self._environ = dict(environ)
        self._known: list[Supported] = []  # when it was last asked; ids and GPUs stay the same
        self._strange: set[int] = set()
        self._in_vain: object = None  # what was lacking when a list did not help
        self._refusal = ""  # why the last list was not taken

    def check(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.check`."""
        if self._indices(gpus):
            self._named(gpus, self.supported())

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """See `Guard.join`."""
        if not self._indices(gpus):
            return
        known = self.supported()
        wanted = self._named(gpus, known)
        for other in known:
            if other.active and other.id != wanted.id and other.gpus & wanted.gpus:
                self._tell("-d", other.id)
        if wanted.active:
            return
        try:
            self._tell("-a", wanted.id)
        except Internal:
            if any(one.active for one in known):
                raise
            self._give([])  # one that was restarted waits for a list, if only for an empty one
            self._tell("-a", wanted.id)

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """See `Guard.leave`."""
        indices = self._indices(gpus)
        for other in self.supported() if indices else ():
            if other.active and other.gpus & indices:
                self._tell("-d", other.id)

    def keep(self, held: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `Keeper.keep`.

        Partitions that are active and nobody's are told of, and left as they are.
        """
        ours = {self._indices(one.gpus): one.partition for one in held}
        ours.pop(frozenset(), None)
        try:
            known = self.supported()
        except Internal:
            known = self._known  # it may wait for the list before it says anything
            if not ours or not known:
                raise
        strange = {one.id for one in known if one.active and one.gpus not in ours}
        for number in sorted(strange - self._strange):
            _log.warning("Fabric Manager's partition %d is active, and nobody's here", number)
        self._strange = strange
        active = {one.gpus for one in known if one.active}
        lacking = ours.keys() - active
        if (lacking and lacking != self._in_vain) or known is self._known:
            self._give([one.id for one in known if one.gpus in ours or one.id in strange])
            active = {one.gpus for one in self.supported() if one.active}
            if ours.keys() <= active:
                _log.warning("Fabric Manager was restarted, and knows of its partitions again")
        self._in_vain = ours.keys() - active
        self._known = known
        return {
            self._gpus[index].uuid: f"Fabric Manager has lost partition {name}: reset it"
            for gpus, name in ours.items()
            if gpus not in active
            for index in gpus
        }

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

    def _indices(self, gpus: Sequence[Gpu]) -> frozenset[int]:
        """Of these, the whole GPUs. Slices have no NVLink."""
        return frozenset(self._at[gpu.uuid] for gpu in gpus if gpu.uuid in self._at)

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
        indices = self._indices(gpus)
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

    def _give(self, numbers: Sequence[int]) -> None:
        """What was active before its restart. One that is not in restart mode takes no list."""
        refusal = ""
        try:
            words = ["--set-activated-list", ",".join(map(str, sorted(numbers)))]
            run([*self._command, *words], self._environ)
        except Internal as error:
            refusal = error.problem
        if refusal and refusal != self._refusal:
            _log.warning("Fabric Manager takes no list of partitions: %s", refusal)
        self._refusal = refusal
