"""NVLink partitions of a node with NVSwitch, through Fabric Manager's shared NVSwitch mode.

Fabric Manager has a fixed list of partitions, some of which are active. GPUs reach each other over
the switches only inside an active entry. This driver runs NVIDIA's command `fmpm`
(Fabric-Manager-Client): the structures of NVIDIA's library differ from version to version, and the
command's JSON does not. Fabric Manager's partitions have numbers and no owner, so the agent writes
down which of them are Podwright's.

A Fabric Manager that was restarted in its restart mode (FABRIC_MODE_RESTART=1) goes on forwarding.
It knows of no active partition, and activates none, until it is given the list of those that were
active. `keep` gives it that list.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.agents._fabric_driver import FabricDevice
from podwright.agents.fabric import FabricReading
from podwright.agents.gpu._guards import HeldPartition
from podwright.agents.gpu._machine_notes import PartitionNote, PartitionNotes
from podwright.errors import Internal, InvalidRequest, WrongState
from podwright.hosts.gpus import Gpu

_log = logging.getLogger("podwright.agent")

#: Runs fmpm with these arguments and returns its output. Raises Internal when it fails.
Fmpm = Callable[[Sequence[str]], str]
#: Values of fmReturn: a time-out, and a broken connection. The request may have been carried out.
#: (NVIDIA's nv_fm_types.h: FM_ST_TIMEOUT, FM_ST_CONNECTION_NOT_VALID.)
_UNANSWERED = (-5, -9)


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
    """A MachineFabric. fmpm: runs NVIDIA's client. gpus: all GPUs of the machine, in their
    order.
    """

    kind = "Fabric Manager"

    def __init__(
        self, fmpm: Fmpm, gpus: Sequence[Gpu], notes: PartitionNotes, machine: str = "here"
    ) -> None:
        self.machine = machine
        self._fmpm = fmpm
        self._gpus = tuple(gpus)
        self._index_of = {gpu.uuid: gpu.index for gpu in gpus}
        self._notes = notes
        self._listed: list[Supported] = []  # as `keep` last read them; ids and GPUs stay the same
        self._strange: set[int] = set()
        self._in_vain: object = None  # the sets that were still inactive after the last list
        self._refusal = ""  # why the last list was refused

    # -- the contract of all fabrics ---------------------------------------------------------------

    def settle(self) -> None:
        """See `FabricHardware.settle`.

        Fabric Manager carries out one request after the other, so the next request waits by itself.
        """

    def read(self, devices: Iterable[FabricDevice]) -> FabricReading:
        """See `FabricHardware.read`. The two records are the notes and the active partitions."""
        partitions: dict[str, frozenset[FabricDevice]] = {}
        foreign: dict[FabricDevice, str] = {}
        doubts: dict[str, str] = {}
        disputed: dict[FabricDevice, str] = {}
        notes = self._notes.entries()
        for listed in self.supported():
            members, note = self._named(listed.gpus), notes.get(listed.id)
            if note is None:
                if listed.active:
                    title = f"Fabric Manager's partition {listed.id}"
                    foreign.update(dict.fromkeys(members, title))
                continue
            name = note.partition
            if name in partitions:
                doubts[name] = f"partition {name} is two of Fabric Manager's"
                disputed.update(dict.fromkeys(members | partitions[name], name))
            if not listed.active:
                doubts[name] = f"Fabric Manager's partition {listed.id} is not active"
                disputed.update(dict.fromkeys(members, name))
            partitions[name] = partitions.get(name, frozenset()) | members
        occupied = frozenset().union(foreign, *partitions.values())
        free = self._named(self._index_of.values()) - occupied
        return FabricReading(partitions, foreign, free, doubts, disputed=disputed)

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        listed, own = self.supported(), self._own(partition)
        present = frozenset().union(*(entry.gpus for entry in listed if entry.id in own))
        self._exchange(partition, listed, own, present | {device.index for device in devices})

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`.

        Raises InvalidRequest when Fabric Manager has no partition of exactly the GPUs that stay.
        """
        listed, own = self.supported(), self._own(partition)
        present = frozenset().union(*(entry.gpus for entry in listed if entry.id in own))
        rest = present - {device.index for device in devices}
        if rest:
            self._exchange(partition, listed, own, rest)
            return
        self._deactivate(listed, own)

    # -- the guard's part --------------------------------------------------------------------------

    def devices(self, gpus: Sequence[Gpu]) -> frozenset[FabricDevice]:
        """See `MachineFabric.devices`: these are the whole GPUs. Slices have no NVLink."""
        return self._named(self._indices(gpus))

    def check(self, devices: frozenset[FabricDevice]) -> None:
        """See `MachineFabric.check`."""
        self._matching(frozenset(device.index for device in devices), self.supported())

    def give(self, partition: str, owner: str) -> None:
        """See `MachineFabric.give`. Fabric Manager knows no users."""

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `MachineFabric.keep`.

        An active partition that is not in the record is named in the log, and left as it is.
        """
        ours = {self._indices(entry.gpus): entry.partition for entry in partitions}
        ours.pop(frozenset(), None)
        try:
            listed = self.supported()
        except Internal:
            listed = self._listed  # a restarted one may answer nothing before it has the list
            if not ours or not listed:
                raise
        strange = {entry.id for entry in listed if entry.active and entry.gpus not in ours}
        strange -= self._notes.entries().keys()
        for number in sorted(strange - self._strange):
            _log.warning("Fabric Manager's partition %d is active, and nobody's here", number)
        self._strange = strange
        active = {entry.gpus for entry in listed if entry.active}
        lacking = ours.keys() - active
        if (lacking and lacking != self._in_vain) or listed is self._listed:
            self._give_list(
                [entry.id for entry in listed if entry.gpus in ours or entry.id in strange]
            )
            active = {entry.gpus for entry in self.supported() if entry.active}
            if ours.keys() <= active:
                _log.warning("Fabric Manager was restarted, and knows of its partitions again")
        self._in_vain = ours.keys() - active
        self._listed = listed
        self._note_recorded(listed, ours)
        return {
            self._gpus[index].uuid: f"Fabric Manager has lost partition {name}: reset it"
            for gpus, name in ours.items()
            if gpus not in active
            for index in gpus
        }

    def supported(self) -> list[Supported]:
        """Return the partitions that Fabric Manager supports. Raises Internal."""
        text = self._fmpm(["-l"])
        try:
            listed = msgspec.json.decode(text, type=_List)
        except msgspec.MsgspecError as error:
            raise Internal(f"fmpm -l prints no list of partitions: {error}") from None
        return [
            Supported(
                entry.partitionId, bool(entry.isActive), frozenset(map(self._index, entry.gpuInfo))
            )
            for entry in listed.partitionInfo
        ]

    # -- inside ------------------------------------------------------------------------------------

    def _own(self, partition: str) -> set[int]:
        return {n for n, note in self._notes.entries().items() if note.partition == partition}

    def _named(self, indices: Iterable[int]) -> frozenset[FabricDevice]:
        return frozenset(FabricDevice(self.machine, index) for index in indices)

    def _indices(self, gpus: Sequence[Gpu]) -> frozenset[int]:
        return frozenset(self._index_of[gpu.uuid] for gpu in gpus if gpu.uuid in self._index_of)

    def _index(self, member: _Member) -> int:
        """Return the index of this machine's GPU that the member is, by all that identifies it.

        An inactive partition may give nothing but the module of a GPU.
        """
        bus = member.pciBusId.lower()
        matches = {
            gpu.index
            for gpu in self._gpus
            if (member.uuid and member.uuid == gpu.uuid) or (bus and bus.endswith(gpu.bus[4:]))
        }
        if not member.uuid and not bus:
            matches = {gpu.index for gpu in self._gpus if gpu.module == member.physicalId}
        if len(matches) == 1:
            return matches.pop()
        name = member.uuid or bus or f"module {member.physicalId}"
        if matches:
            raise Internal(
                f"Fabric Manager lists a GPU {member.uuid} at {bus}, and here these are GPUs "
                f"{', '.join(map(str, sorted(matches)))}"
            )
        raise Internal(f"Fabric Manager lists a GPU {name} that is not on this machine")

    def _matching(self, indices: frozenset[int], listed: Sequence[Supported]) -> Supported:
        for entry in listed:
            if entry.gpus == indices:
                return entry
        sets = sorted(sorted(entry.gpus) for entry in listed if len(entry.gpus) == len(indices))
        texts = ", ".join("-".join(map(str, (gpus[0], gpus[-1]))) for gpus in sets[:8])
        raise InvalidRequest(
            f"Fabric Manager has no partition of GPUs {', '.join(map(str, sorted(indices)))}",
            would_work=f"choose, with {len(indices)} GPUs: {texts}"
            if texts
            else "choose another size",
        )

    def _exchange(
        self, partition: str, listed: Sequence[Supported], own: set[int], gpus: frozenset[int]
    ) -> None:
        """Replace a partition's present sets of GPUs by this set.

        The note of the new set is written first, and the notes of the old sets are removed last. A
        kill in between leaves notes that disagree with the active partitions, and the next call
        repairs that. Fabric Manager exchanges sets in two requests. Another party can take a GPU
        between them; then the call fails and names the GPU.
        """
        target = self._matching(gpus, listed)
        if target.active and target.id not in own:
            raise WrongState(f"Fabric Manager's partition {target.id} is active, and not ours")
        uuids = tuple(self._gpus[index].uuid for index in sorted(gpus))
        self._notes.write(target.id, PartitionNote(partition, uuids))
        for entry in listed:
            if entry.active and entry.id in own and entry.id != target.id:
                self._fmpm(["-d", str(entry.id)])
        if not target.active:
            self._activate(
                target.id, new=target.id not in own, idle=not any(entry.active for entry in listed)
            )
        self._forget(own - {target.id}, successor=target.id)

    def _activate(self, number: int, *, new: bool, idle: bool) -> None:
        """Activate a partition whose note is written.

        new: the partition had no note before this call. idle: no partition was active, as after a
        restart.

        When Fabric Manager refuses, another party may have the partition. Then the note is removed,
        because it would claim the other party's partition. When the reply is lost, the note stays:
        the partition was inactive a moment ago, so if it is active now, this request is taken as
        the cause.
        """
        try:
            try:
                self._fmpm(["-a", str(number)])
            except Internal as error:
                if not idle or not _refused(error):
                    raise
                self._give_list([])  # a restarted one waits for a list, even an empty one
                self._fmpm(["-a", str(number)])
        except Internal as error:
            if new and _refused(error):
                self._notes.remove(number)
            raise

    def _deactivate(self, listed: Sequence[Supported], own: Collection[int]) -> None:
        for entry in listed:
            if entry.active and entry.id in own:
                self._fmpm(["-d", str(entry.id)])
        self._forget(own)

    def _forget(self, numbers: Collection[int], successor: int | None = None) -> None:
        """Remove the notes of partitions that a fresh reading shows as inactive.

        Fabric Manager's reply is not enough: an active partition without a note would belong to
        nobody. successor: the partition that replaces them. While it is inactive, their notes stay,
        because they show that the call is not over.
        """
        active = {entry.id for entry in self.supported() if entry.active} if numbers else set()
        if successor is None or successor in active:
            for number in set(numbers) - active:
                self._notes.remove(number)

    def _note_recorded(
        self, listed: Sequence[Supported], ours: Mapping[frozenset[int], str]
    ) -> None:
        """Write the notes of partitions that only the machine's own record has.

        An agent of a version without notes made such partitions.
        """
        notes = self._notes.entries()
        for entry in listed:
            if entry.active and entry.gpus in ours and entry.id not in notes:
                uuids = tuple(self._gpus[index].uuid for index in sorted(entry.gpus))
                self._notes.write(entry.id, PartitionNote(ours[entry.gpus], uuids))

    def _give_list(self, numbers: Sequence[int]) -> None:
        """Tell Fabric Manager which partitions were active before its restart.

        A Fabric Manager that is not in restart mode refuses the list; the refusal goes to the log.
        """
        refusal = ""
        try:
            self._fmpm(["--set-activated-list", ",".join(map(str, sorted(numbers)))])
        except Internal as error:
            refusal = error.problem
        if refusal and refusal != self._refusal:
            _log.warning("Fabric Manager takes no list of partitions: %s", refusal)
        self._refusal = refusal


def _refused(error: Internal) -> bool:
    """Return whether Fabric Manager answered, and carried nothing out."""
    answer = re.search(r"fmReturn: (-\d+)", error.problem)
    return answer is not None and int(answer[1]) not in _UNANSWERED
