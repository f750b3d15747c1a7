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

from podwright.agents._fabric_driver_interface import FabricDevice
from podwright.agents.fabric import FabricReading
from podwright.agents.gpu._fabric_note_files import PartitionNote, PartitionNotes
from podwright.agents.gpu._guards import HeldPartition
from podwright.errors import Internal, InvalidRequest, WrongState
from podwright.hosts.gpus import Gpu

_log = logging.getLogger("podwright.agent")

#: Runs fmpm with these arguments and returns its output. Raises Internal when it fails.
RunFmpm = Callable[[Sequence[str]], str]
#: Values of fmReturn: a time-out, and a broken connection. The request may have been carried out.
#: (NVIDIA's nv_fm_types.h: FM_ST_TIMEOUT, FM_ST_CONNECTION_NOT_VALID.)
_UNANSWERED_CODES = (-5, -9)


class _ListedGpu(msgspec.Struct, frozen=True):
    physicalId: int
    uuid: str = ""
    pciBusId: str = ""


class _ListedPartition(msgspec.Struct, frozen=True):
    partitionId: int
    isActive: int
    gpuInfo: tuple[_ListedGpu, ...]


class _PartitionList(msgspec.Struct, frozen=True):
    partitionInfo: tuple[_ListedPartition, ...] = ()


class SupportedPartition(NamedTuple):
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
        self, fmpm: RunFmpm, gpus: Sequence[Gpu], notes: PartitionNotes, machine: str = "here"
    ) -> None:
        self.machine = machine
        self._fmpm = fmpm
        self._gpus = tuple(gpus)
        self._index_of = {gpu.uuid: gpu.index for gpu in gpus}
        self._notes = notes
        # As `keep` last read them; ids and GPUs stay the same.
        self._listed: list[SupportedPartition] = []
        self._strange: set[int] = set()
        # The sets of devices that were still inactive after the last list was sent.
        self._still_inactive_sets: object = None
        self._refusal = ""  # why the last list was refused

    # -- the contract of all fabrics ---------------------------------------------------------------

    def settle(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.settle`.

        Fabric Manager carries out one request after the other, so the next request waits by itself.
        """

    def read(
        self, devices: Iterable[FabricDevice], machines: Collection[str] = ()
    ) -> FabricReading:
        """See `FabricHardware.read`. The two records are the notes and the active partitions."""
        partitions: dict[str, frozenset[FabricDevice]] = {}
        foreign_holders: dict[FabricDevice, str] = {}
        doubt_texts: dict[str, str] = {}
        disputed_devices: dict[FabricDevice, str] = {}
        notes_by_id = self._notes.entries()
        for listed_partition in self.supported():
            member_devices, note = (
                self._fabric_devices(listed_partition.gpus),
                notes_by_id.get(listed_partition.id),
            )
            if note is None:
                if listed_partition.active:
                    foreign_title = f"Fabric Manager's partition {listed_partition.id}"
                    foreign_holders.update(dict.fromkeys(member_devices, foreign_title))
                continue
            partition_name = note.partition
            if partition_name in partitions:
                doubt_texts[partition_name] = (
                    f"partition {partition_name} is two of Fabric Manager's"
                )
                disputed_devices.update(
                    dict.fromkeys(member_devices | partitions[partition_name], partition_name)
                )
            if not listed_partition.active:
                doubt_texts[partition_name] = (
                    f"Fabric Manager's partition {listed_partition.id} is not active"
                )
                disputed_devices.update(dict.fromkeys(member_devices, partition_name))
            partitions[partition_name] = (
                partitions.get(partition_name, frozenset()) | member_devices
            )
        occupied_devices = frozenset().union(foreign_holders, *partitions.values())
        free_devices = self._fabric_devices(self._index_of.values()) - occupied_devices
        return FabricReading(
            partitions, foreign_holders, free_devices, doubt_texts, disputed=disputed_devices
        )

    def add(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.add`."""
        listed_partitions, own_ids = self.supported(), self._own(partition)
        indices = frozenset().union(
            *(
                listed_partition.gpus
                for listed_partition in listed_partitions
                if listed_partition.id in own_ids
            )
        )
        self._exchange(
            partition,
            listed_partitions,
            own_ids,
            indices | {device.index for device in devices},
        )

    def remove(self, partition: str, devices: frozenset[FabricDevice]) -> None:
        """See `FabricHardware.remove`.

        Raises InvalidRequest when Fabric Manager has no partition of exactly the GPUs that stay.
        """
        listed_partitions, own_ids = self.supported(), self._own(partition)
        present_indices = frozenset().union(
            *(
                listed_partition.gpus
                for listed_partition in listed_partitions
                if listed_partition.id in own_ids
            )
        )
        remaining_indices = present_indices - {device.index for device in devices}
        if remaining_indices:
            self._exchange(partition, listed_partitions, own_ids, remaining_indices)
            return
        self._deactivate(listed_partitions, own_ids)

    # -- the guard's part --------------------------------------------------------------------------

    def devices(self, gpus: Sequence[Gpu]) -> frozenset[FabricDevice]:
        """See `MachineFabric.devices`: these are the whole GPUs. Slices have no NVLink."""
        return self._fabric_devices(self._gpu_indices(gpus))

    def check(self, devices: frozenset[FabricDevice]) -> None:
        """See `MachineFabric.check`."""
        self._matching(frozenset(device.index for device in devices), self.supported())

    def give(self, partition: str, owner: str) -> None:
        """See `MachineFabric.give`. Fabric Manager knows no users."""

    def keep(self, partitions: Sequence[HeldPartition]) -> Mapping[str, str]:
        """See `MachineFabric.keep`.

        An active partition that is not in the record is named in the log, and left as it is.
        """
        recorded_sets = {self._gpu_indices(entry.gpus): entry.partition for entry in partitions}
        recorded_sets.pop(frozenset(), None)
        try:
            listed_partitions = self.supported()
        except Internal:
            # A restarted Fabric Manager may answer nothing before it has the list of partitions.
            listed_partitions = self._listed
            if not recorded_sets or not listed_partitions:
                raise
        unowned_ids = {
            entry.id
            for entry in listed_partitions
            if entry.active and entry.gpus not in recorded_sets
        }
        unowned_ids -= self._notes.entries().keys()
        for unowned_id in sorted(unowned_ids - self._strange):
            _log.warning("Fabric Manager's partition %d is active, and nobody's here", unowned_id)
        self._strange = unowned_ids
        active_gpu_sets = {entry.gpus for entry in listed_partitions if entry.active}
        lost_gpu_sets = recorded_sets.keys() - active_gpu_sets
        if (
            lost_gpu_sets and lost_gpu_sets != self._still_inactive_sets
        ) or listed_partitions is self._listed:
            self._send_active_list(
                [
                    entry.id
                    for entry in listed_partitions
                    if entry.gpus in recorded_sets or entry.id in unowned_ids
                ]
            )
            active_gpu_sets = {entry.gpus for entry in self.supported() if entry.active}
            if recorded_sets.keys() <= active_gpu_sets:
                _log.warning("Fabric Manager was restarted, and knows of its partitions again")
        self._still_inactive_sets = recorded_sets.keys() - active_gpu_sets
        self._listed = listed_partitions
        self._write_missing_notes(listed_partitions, recorded_sets)
        return {
            self._gpus[index].uuid: f"Fabric Manager has lost partition {name}: reset it"
            for indices, name in recorded_sets.items()
            if indices not in active_gpu_sets
            for index in indices
        }

    def supported(self) -> list[SupportedPartition]:
        """Return the partitions that Fabric Manager supports. Raises Internal."""
        output = self._fmpm(["-l"])
        try:
            partition_list = msgspec.json.decode(output, type=_PartitionList)
        except msgspec.MsgspecError as error:
            raise Internal(f"fmpm -l prints no list of partitions: {error}") from None
        return [
            SupportedPartition(
                partition.partitionId,
                bool(partition.isActive),
                frozenset(map(self._listed_gpu_index, partition.gpuInfo)),
            )
            for partition in partition_list.partitionInfo
        ]

    # -- inside ------------------------------------------------------------------------------------

    def _own(self, partition: str) -> set[int]:
        return {
            partition_id
            for partition_id, note in self._notes.entries().items()
            if note.partition == partition
        }

    def _fabric_devices(self, gpu_indices: Iterable[int]) -> frozenset[FabricDevice]:
        return frozenset(FabricDevice(self.machine, index) for index in gpu_indices)

    def _gpu_indices(self, gpus: Sequence[Gpu]) -> frozenset[int]:
        return frozenset(self._index_of[gpu.uuid] for gpu in gpus if gpu.uuid in self._index_of)

    def _listed_gpu_index(self, listed_gpu: _ListedGpu) -> int:
        """Return the index of this machine's GPU that the member is, by all that identifies it.

        An inactive partition may give nothing but the module of a GPU.
        """
        bus_id = listed_gpu.pciBusId.lower()
        matching_indices = {
            gpu.index
            for gpu in self._gpus
            if (listed_gpu.uuid and listed_gpu.uuid == gpu.uuid)
            or (bus_id and bus_id.endswith(gpu.bus[4:]))
        }
        if not listed_gpu.uuid and not bus_id:
            matching_indices = {
                gpu.index for gpu in self._gpus if gpu.module == listed_gpu.physicalId
            }
        if len(matching_indices) == 1:
            return matching_indices.pop()
        gpu_text = listed_gpu.uuid or bus_id or f"module {listed_gpu.physicalId}"
        if matching_indices:
            raise Internal(
                f"Fabric Manager lists a GPU {listed_gpu.uuid} at {bus_id}, and here these are "
                f"GPUs {', '.join(map(str, sorted(matching_indices)))}"
            )
        raise Internal(f"Fabric Manager lists a GPU {gpu_text} that is not on this machine")

    def _matching(
        self, gpu_indices: frozenset[int], listed_partitions: Sequence[SupportedPartition]
    ) -> SupportedPartition:
        for listed_partition in listed_partitions:
            if listed_partition.gpus == gpu_indices:
                return listed_partition
        possible_sets = sorted(
            sorted(partition.gpus)
            for partition in listed_partitions
            if len(partition.gpus) == len(gpu_indices)
        )
        set_texts = ", ".join(
            "-".join(map(str, (gpu_set[0], gpu_set[-1]))) for gpu_set in possible_sets[:8]
        )
        raise InvalidRequest(
            f"Fabric Manager has no partition of GPUs {', '.join(map(str, sorted(gpu_indices)))}",
            would_work=f"choose, with {len(gpu_indices)} GPUs: {set_texts}"
            if set_texts
            else "choose another size",
        )

    def _exchange(
        self,
        partition: str,
        listed_partitions: Sequence[SupportedPartition],
        own_ids: set[int],
        gpu_indices: frozenset[int],
    ) -> None:
        """Replace a partition's present sets of GPUs by this set.

        The note of the new set is written first, and the notes of the old sets are removed last. A
        kill in between leaves notes that disagree with the active partitions, and the next call
        repairs that. Fabric Manager exchanges sets in two requests. Another party can take a GPU
        between them; then the call fails and names the GPU.
        """
        target_partition = self._matching(gpu_indices, listed_partitions)
        if target_partition.active and target_partition.id not in own_ids:
            raise WrongState(
                f"Fabric Manager's partition {target_partition.id} is active, and not ours"
            )
        uuids = tuple(self._gpus[index].uuid for index in sorted(gpu_indices))
        self._notes.write(target_partition.id, PartitionNote(partition, uuids))
        for listed_partition in listed_partitions:
            if (
                listed_partition.active
                and listed_partition.id in own_ids
                and listed_partition.id != target_partition.id
            ):
                self._fmpm(["-d", str(listed_partition.id)])
        if not target_partition.active:
            self._activate(
                target_partition.id,
                new=target_partition.id not in own_ids,
                idle=not any(listed_partition.active for listed_partition in listed_partitions),
            )
        self._forget(own_ids - {target_partition.id}, successor=target_partition.id)

    def _activate(self, partition_id: int, *, new: bool, idle: bool) -> None:
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
                self._fmpm(["-a", str(partition_id)])
            except Internal as error:
                if not idle or not _is_refusal(error):
                    raise
                self._send_active_list([])  # a restarted one waits for a list, even an empty one
                self._fmpm(["-a", str(partition_id)])
        except Internal as error:
            if new and _is_refusal(error):
                self._notes.remove(partition_id)
            raise

    def _deactivate(
        self, listed_partitions: Sequence[SupportedPartition], own_ids: Collection[int]
    ) -> None:
        for partition in listed_partitions:
            if partition.active and partition.id in own_ids:
                self._fmpm(["-d", str(partition.id)])
        self._forget(own_ids)

    def _forget(self, partition_ids: Collection[int], successor: int | None = None) -> None:
        """Remove the notes of partitions that a fresh reading shows as inactive.

        Fabric Manager's reply is not enough: an active partition without a note would belong to
        nobody. successor: the partition that replaces them. While it is inactive, their notes stay,
        because they show that the call is not over.
        """
        active_ids = (
            {partition.id for partition in self.supported() if partition.active}
            if partition_ids
            else set()
        )
        if successor is None or successor in active_ids:
            for partition_id in set(partition_ids) - active_ids:
                self._notes.remove(partition_id)

    def _write_missing_notes(
        self,
        listed_partitions: Sequence[SupportedPartition],
        recorded_sets: Mapping[frozenset[int], str],
    ) -> None:
        """Write the notes of partitions that only the machine's own record has.

        An agent of a version without notes made such partitions.
        """
        notes = self._notes.entries()
        for listed_partition in listed_partitions:
            if (
                listed_partition.active
                and listed_partition.gpus in recorded_sets
                and listed_partition.id not in notes
            ):
                uuids = tuple(self._gpus[index].uuid for index in sorted(listed_partition.gpus))
                self._notes.write(
                    listed_partition.id, PartitionNote(recorded_sets[listed_partition.gpus], uuids)
                )

    def _send_active_list(self, partition_ids: Sequence[int]) -> None:
        """Tell Fabric Manager which partitions were active before its restart.

        A Fabric Manager that is not in restart mode refuses the list; the refusal goes to the log.
        """
        text = ""
        try:
            self._fmpm(["--set-activated-list", ",".join(map(str, sorted(partition_ids)))])
        except Internal as error:
            text = error.problem
        if text and text != self._refusal:
            _log.warning("Fabric Manager takes no list of partitions: %s", text)
        self._refusal = text


def _is_refusal(error: Internal) -> bool:
    """Return whether Fabric Manager answered, and carried nothing out."""
    return_code_match = re.search(r"fmReturn: (-\d+)", error.problem)
    return return_code_match is not None and int(return_code_match[1]) not in _UNANSWERED_CODES
