"""One start of all instances: its folder, its keeper, its hosts; and their end, however it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.hosts import children
from podwright.launcher._engine import Command
from podwright.launcher._environment import whole_environment
from podwright.launcher._folder import RunFolder, make_folder
from podwright.launcher._guardian import ENGINE, START, wait_for_end
from podwright.launcher._hosts import NOWHERE, Remotes
from podwright.launcher._instance_wrapper import give
from podwright.launcher._lease_keeper import KeeperProcess, Means, start_keeper

if TYPE_CHECKING:
    from podwright.launcher._fork_server import ForkServer

Environment = Mapping[str, str]
Fixed = Environment | tuple[tuple[str, str], ...]


class Attempt:
    """What one start has made. words: what the guardian's children say before they are watched.

    wrapper, program, owned: how an instance is started here, and which ranks are.
    """

    def __init__(
        self,
        environ: Environment,
        name: str,
        keeper: Means,
        handles: Sequence[int],
        *,
        held: bool,
        server: ForkServer | None,
    ) -> None:
        """handles: what is not for the keeper. server: what forks it, if not this process."""
        self._environ = environ
        made = make_folder(environ, name)
        self.words, theirs = os.pipe()
        os.set_blocking(self.words, False)
        close = [self.words, *handles]
        self.kept: KeeperProcess
        self.folder: RunFolder
        self.kept, self.folder = start_keeper(
            made, theirs, keeper, close=close, held=held, server=server
        )
        os.close(theirs)
        self.remotes: Remotes = NOWHERE
        self.wrapper: list[str] = []
        self.program: list[str] = []
        self.owned: Sequence[int] = ()
        self.early = False
        self._watched = False

    @property
    def name(self) -> str:
        """By which the server knows it."""
        return self.folder.name.rpartition("-")[2]

    def start_engine(self, command: Command, fixed: Fixed, own: Environment) -> None:
        """Start mpirun while the partition is asked for: no instance begins before it is given
        what `start` would give it (_instance_wrapper)."""
        self.early = True
        environment = whole_environment(self._environ, fixed, own)
        self.kept.guardian.send(START, [(ENGINE, list(command.argv), {})], environment)

    def start(
        self, command: Command, fixed: Fixed, own: Environment, late: Environment, far: object
    ) -> None:
        """Start the instances, or let those begin whose mpirun has begun. late: what was not known
        before. far: the program, as other hosts start it."""
        if self.early:
            return
        environment = whole_environment(self._environ, fixed, late, own)
        for remote in self.remotes:
            ranks = [rank for rank in remote.ranks if command.plain]
            remote.line.send(START, ranks, environment, far)
        starts: list[tuple[int, list[str], dict[str, str]]]
        starts = [(rank, [*self.wrapper, str(rank), *self.program], {}) for rank in self.owned]
        if not command.plain:
            starts = [(ENGINE, list(command.argv), {})]
        self.kept.guardian.send(START, starts, environment)

    def give(self, late: Environment) -> None:
        """What was not known before, to instances whose mpirun has begun."""
        if self.early:
            give(self.folder, dict(late))

    def spare(self) -> list[int]:
        """Children that are no part of the run: a server that was started just now, and its own."""
        return [pid for pid in children(os.getpid()) if pid != self.kept.pid]

    def watched(self) -> None:
        """Whoever watches sees to the guardian's end."""
        self._watched = True

    def close(self) -> None:
        """Nothing of it is left here, but the keeper."""
        if not self._watched:
            wait_for_end(self.kept.guardian)
        self.remotes.close()
        self.folder.remove()
        for lock in self.folder.locks:
            os.close(lock)
