"""Slurm's commands as processes, none of which outlives its caller."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from podwright.slurm.site.commands import SlurmCommands


class Asked:
    """A command under way. pid: of its process."""

    def __init__(self, folder: Path) -> None:
        note = folder / "pid"
        os.mkfifo(note)
        command = SlurmCommands().run("sh", "-c", f"echo $$ >{note}; exec sleep 600")
        self.task = asyncio.create_task(command)
        self._note = note

    async def pid(self) -> int:
        return int(await asyncio.to_thread(self._note.read_text))


async def test_a_command_ends_with_who_asked(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    pid = await asked.pid()
    asked.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
