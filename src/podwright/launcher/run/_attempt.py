"""One start of all instances: its folder, its keeper, its hosts, and its end, however it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from podwright.hosts import children
from podwright.launcher.hosts._remote_hosts import NOWHERE, Remotes
from podwright.launcher.instances._instance_input import take_input
from podwright.launcher.instances._instance_wrapper import give
from podwright.launcher.instances._run_folder import RunFolder, make_folder
from podwright.launcher.options._instance_environment import whole_environment
from podwright.launcher.run._mpirun_engine import Command
from podwright.launcher.watchers._guardian import (
    ENGINE_COMMAND_KIND,
    INPUT_COMMAND_KIND,
    START,
    wait_for_end,
)
from podwright.launcher.watchers._lease_keeper import KeeperMeans, KeeperProcess, start_keeper

if TYPE_CHECKING:
    from podwright.launcher.watchers._fork_server import ForkServer

Environment = Mapping[str, str]
Fixed = Environment | tuple[tuple[str, str], ...]
#: A command for the guardian: its kind or rank, its words, and its own variables.
Started = tuple[int, list[str], dict[str, str]]


class OwnInstances(NamedTuple):
    """The instances on this host: their ranks, and the words in front of a rank and behind it."""

    ranks: Sequence[int]
    wrapper: list[str]
    program: list[str]


class StartOrder(NamedTuple):
    """How all instances are started. Without mpirun, the guardians start them.

    program: as other hosts start it. fixed, added: the variables of the plan, and poprun's own.
    """

    command: Command
    here: OwnInstances
    program: object
    fixed: Fixed
    added: Environment


class Attempt:
    """The parts of one start. words: the output of the guardian's children until they are watched.

    early: whether mpirun was started before the partition was there.
    """

    def __init__(
        self,
        environ: Environment,
        run_name: str,
        means: KeeperMeans,
        unshared_handles: Sequence[int],
        *,
        namespace: bool,
        fork_server: ForkServer | None,
    ) -> None:
        """unshared_handles: descriptors that the keeper must not keep. fork_server: the fork
        server; None: this process.
        """
        self._environ = environ
        folder = make_folder(environ, run_name)
        self.words, words_writer = os.pipe()
        os.set_blocking(self.words, False)
        close_handles = [self.words, *unshared_handles]
        self.keeper: KeeperProcess
        self.folder: RunFolder
        self.keeper, self.folder = start_keeper(
            folder,
            words_writer,
            means,
            close=close_handles,
            namespace=namespace,
            server=fork_server,
        )
        os.close(words_writer)
        self.remotes: Remotes = NOWHERE
        self.early = False
        self._watched = False

    @property
    def name(self) -> str:
        """The name by which the server knows the attempt."""
        return self.folder.name.rpartition("-")[2]

    def start_engine(self, order: StartOrder) -> None:
        """Start mpirun while the partition is requested.

        No instance begins before `give` has written the variables that depend on it
        (_instance_wrapper).
        """
        self.early = True
        environment = whole_environment(self._environ, order.fixed, order.added)
        self.keeper.guardian.send(START, self._engine_commands(order), environment)

    def start(self, order: StartOrder, late_variables: Environment) -> None:
        """Start the instances, unless `start_engine` has started mpirun already.

        late_variables: variables that were not known before.
        """
        if self.early:
            return
        environment = whole_environment(self._environ, order.fixed, late_variables, order.added)
        plain, here = order.command.plain, order.here
        for remote in self.remotes:
            ranks = [rank for rank in remote.ranks if plain]
            remote.line.send(START, ranks, environment, order.program)
        commands: list[Started]
        commands = [(rank, [*here.wrapper, str(rank), *here.program], {}) for rank in here.ranks]
        if not plain:
            commands = self._engine_commands(order)
        elif 0 not in here.ranks:
            commands = [*self._input_commands(here), *commands]
        self.keeper.guardian.send(START, commands, environment)

    def _engine_commands(self, order: StartOrder) -> list[Started]:
        """Return the command of mpirun, and before it what hands instance 0 its input."""
        engine_command: Started = (ENGINE_COMMAND_KIND, list(order.command.argv), {})
        return [*self._input_commands(order.here), engine_command]

    def _input_commands(self, here: OwnInstances) -> list[Started]:
        """Return the command that passes on the input of instance 0, if there is any input."""
        input_command = take_input(self.folder)
        if not input_command:
            return []
        if 0 not in here.ranks:
            self.remotes.pass_input(self.folder)
        return [(INPUT_COMMAND_KIND, input_command, {})]

    def give(self, late_variables: Environment) -> None:
        """Give variables that were not known before to instances whose mpirun has begun.

        Their scripts go on once the watch listens, so they are given before it is made.
        """
        if self.early:
            give(self.folder, dict(late_variables))

    def spare(self) -> list[int]:
        """Return children that are no part of the run, such as a server that was just started."""
        return [pid for pid in children(os.getpid()) if pid != self.keeper.pid]

    def watched(self) -> None:
        """Leave the wait for the guardian's end to the watch."""
        self._watched = True

    def close(self) -> None:
        """Remove everything of this attempt from this host, except the keeper."""
        if not self._watched:
            wait_for_end(self.keeper.guardian)
        self.remotes.close()
        self.folder.remove()
        for handle in self.folder.locks:
            os.close(handle)
