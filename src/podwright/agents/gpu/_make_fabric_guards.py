"""The guards over this machine's own fabrics, with their notes in a folder of the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.agents.gpu._fabric_guard import FabricGuard
from podwright.agents.gpu._fabric_manager import FabricManager
from podwright.agents.gpu._fabric_note_files import FileFabricJournal, FilePartitionNotes
from podwright.agents.gpu._imex_channel import ImexChannels
from podwright.agents.gpu._reset import run
from podwright.hosts.gpus import Gpu


def fabric_manager_guard(
    fmpm_command: Sequence[str],
    gpus: Sequence[Gpu],
    state_folder: Path,
    environ: Mapping[str, str],
    machine: str = "here",
) -> FabricGuard:
    """Return the guard over Fabric Manager.

    fmpm_command: `fmpm` with the arguments that reach the daemon. gpus: the machine's whole GPUs.
    state_folder: a folder of the agent. Raises Internal when the folder cannot be read.
    """

    def fmpm(words: Sequence[str]) -> str:
        return run([*fmpm_command, *words], environ)

    notes, journal = FilePartitionNotes(state_folder), FileFabricJournal(state_folder / "journal")
    return FabricGuard(FabricManager(fmpm, gpus, notes, machine), journal)


def imex_guard(devices: Sequence[Gpu], state_folder: Path, machine: str = "here") -> FabricGuard:
    """Return the guard over IMEX channels.

    devices: all devices of the machine, slices too. Raises Internal when the state cannot be read.
    """
    notes, journal = FilePartitionNotes(state_folder), FileFabricJournal(state_folder / "journal")
    return FabricGuard(ImexChannels(devices, notes, machine), journal)
