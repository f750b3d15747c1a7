"""The walk of poprun: plan, lease from the server, start, wait, release."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from podwright.client import Found
from podwright.hosts import become_subreaper, children, find_program, free_port
from podwright.launch._cause import Cause
from podwright.launch._engine import Engine, Mpirun, local_arguments
from podwright.launch._environment import partition_environment, whole_environment
from podwright.launch._folder import RUN_VARIABLE, make_folder, sweep
from podwright.launch._guardian import start_guardian, wait_for_end
from podwright.launch._lease import Find, Lease, acquire, find
from podwright.launch._output import Output
from podwright.launch._plan import Plan
from podwright.launch._shim import make_shim, restore
from podwright.launch._watch import ENDING, FORWARDED, Watch
from podwright.wire import NotFound


class Interrupted(BaseException):
    """A signal that came before there was anything to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


class ProgramNotFound(NotFound):
    """The program to run is not there, or may not be executed."""

    exit_code = 127


def launch(
    plan: Plan,
    environ: Mapping[str, str],
    *,
    output: Output | None = None,
    engine: Engine | None = None,
    find: Find = find,
) -> int:
    """Run a plan to its end; poprun's exit code. Raises podwright.wire errors if it cannot."""
    output = output or Output(verbosity=plan.verbosity)
    for note in plan.notes:
        output.warn(note)
    try:
        with _signals() as signals:
            return _launch(plan, environ, output, engine or Mpirun(environ), find, signals)
    except Interrupted as stop:
        return 128 + stop.number
    finally:
        output.flush()


def _launch(
    plan: Plan,
    environ: Mapping[str, str],
    output: Output,
    engine: Engine,
    find: Find,
    signals: _Signals,
) -> int:
    _check_program(plan, environ)
    bound = any(instance.place and instance.place.bound for instance in plan.instances)
    if bound and find_program("taskset", environ) is None:
        output.warn("no taskset (util-linux) on PATH: instances are not bound to cores")
        plan = plan.unbound()
    for name in sweep(environ):
        output.log("I", f"removed what the abandoned run {name} had left")
    folder = make_folder(environ)
    words, theirs = os.pipe()
    os.set_blocking(words, False)
    guardian = start_guardian(folder, theirs, close=[words, *signals.handles])
    os.close(theirs)
    lease: Lease | None = None
    watched = False
    try:
        shim = make_shim(folder, len(plan.instances))
        command = engine.command(plan, folder, shim, [*restore(folder, environ), *plan.program])
        for note in command.notes:
            output.warn(note)
        output.log("D", " ".join(f"'{word}'" for word in command.argv))
        found = find(plan, environ)
        output.log("I", f"server {found.address} ({found.how})")
        reply = acquire(
            found.client,
            plan.request,
            plan.attempts,
            lambda error: output.warn(f"{error.message} Trying again."),
        )
        lease = Lease(found.client, reply)
        _announce(plan, lease, output)
        host, port = _tcp_address(found)
        environment = whole_environment(
            environ,
            plan.environment,
            partition_environment(
                lease.partition, plan.server_host or host, plan.server_port or port, environ
            ),
            {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
            command.environment,
            {RUN_VARIABLE: folder.name},
        )
        # A server that was started just now is no part of the run, nor is what it starts.
        spare = [pid for pid in children(os.getpid()) if pid != guardian.pid]
        watch = Watch(
            folder,
            guardian,
            output,
            len(plan.instances),
            words=words,
            wake=signals.collect(),
            lost=lease.lost,
            only=plan.only_output_from,
        )
        watched = True
        watch.start(command.argv, environment, spare)
        become_subreaper()
        lease.keep()
        cause = watch.run()
        return _report(cause, watch, plan, lease, output)
    finally:
        signals.ignore()
        if not watched:
            wait_for_end(guardian)
        folder.remove()
        for lock in folder.locks:
            os.close(lock)
        if lease:
            problem = lease.release()
            if problem:
                output.warn(f"the lease was not given back and ends by itself: {problem.message}")


def _tcp_address(found: Found) -> tuple[str, str]:
    """Host and port where instances reach the server; empty if it has only a socket."""
    host, _, port = found.address.rpartition(":")
    return ("", "") if "/" in host + port else (host.strip("[]"), port)


def _check_program(plan: Plan, environ: Mapping[str, str]) -> None:
    """Find out now, and not from as many shells as there are instances."""
    name = plan.program[0]
    for instance in plan.instances:
        if "PATH" in local_arguments(instance.mpi_arguments)[0]:
            return
    if find_program(name, environ) is None:
        where = "there" if "/" in name else "on PATH"
        raise ProgramNotFound(
            f"there is no program {name!r} {where} that may be executed",
            would_work="Name the interpreter too (python3 train.py), or give the program's path",
        )


def _announce(plan: Plan, lease: Lease, output: Output) -> None:
    partition = lease.partition
    made = "created" if lease.created else "found"
    kind = "reconfigurable" if partition.reconfigurable else "non-reconfigurable"
    output.log("I", f"partition {partition.name}: {made}, {kind}, {partition.size} devices")
    if partition.simulated:
        output.say(f"SIMULATED: the devices of partition {partition.name} are simulated")
    if plan.print_topology or plan.verbosity > 1:
        output.out.add(plan.topology(partition.num_ilds).encode() + b"\n")


def _report(cause: Cause | None, watch: Watch, plan: Plan, lease: Lease, output: Output) -> int:
    if cause is None:
        return 0
    if cause.instance >= 0:
        lines = watch.last_words(cause.instance)
        output.error(f"{cause.text}{'. Its last lines:' if lines else ', and wrote nothing'}")
        for line in lines:
            output.err.add(b"  " + line + b"\n")
    elif lease.reason:
        output.error(f"{cause.text}: {lease.reason.message}")
    else:
        output.error(cause.text)
    return cause.code


class _Signals:
    """Signals: at first they interrupt; while instances run they are numbers to read."""

    def __init__(self) -> None:
        self._raise = True
        self._wake, self._poke = os.pipe()
        for handle in self.handles:
            os.set_blocking(handle, False)

    @property
    def handles(self) -> tuple[int, int]:
        return self._wake, self._poke

    def collect(self) -> int:
        """From now on they interrupt nothing; where to read them."""
        signal.set_wakeup_fd(self._poke, warn_on_full_buffer=False)
        self._raise = False
        return self._wake

    def ignore(self) -> None:
        """From now on nothing but the orderly end: it is short."""
        self._raise = False

    def __call__(self, number: int, frame: Any) -> None:
        if self._raise and number in ENDING:
            self._raise = False
            raise Interrupted(number)


@contextlib.contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    before = {}
    for number in (*ENDING, *FORWARDED):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background
            before[number] = signal.signal(number, signals)
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        for handle in signals.handles:
            os.close(handle)
