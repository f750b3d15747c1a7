"""The partition of a launch: asked for, held over all its starts, moved, given back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.errors import Internal, PodwrightError, TimedOut, WrongState
from podwright.launcher._environment import check_hosts, partition_environment, visible_gpus
from podwright.launcher._exit_cause import TIMED_OUT
from podwright.launcher._hosts import Remotes
from podwright.launcher._output import Output
from podwright.launcher._plan import Plan
from podwright.timeline import TraceWriter, clock

if TYPE_CHECKING:
    from podwright.client import FoundServer
    from podwright.launcher._lease import Borrowed, Keeping, Lease
    from podwright.wire import AcquireRequest


#: Seconds that one question in the waiting line may take: hosts that were met hear from us between.
_QUESTION = 4.0
#: Programs that run others, which are what a person would call by name.
_INTERPRETERS = ("python", "sh", "bash", "perl", "env", "time", "numactl")

Find = Callable[[Plan, Mapping[str, str]], "FoundServer"]


class OutOfTime(TimedOut):
    """The time of --timeout is over before anything was started."""

    exit_code = TIMED_OUT


class LaunchPartition:
    """lease: None where nothing is held. environment: what the instances are told of it.

    end: when --timeout is over.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        output: Output,
        find: Find | None,
        trace: TraceWriter,
        end: float | None,
    ) -> None:
        self._environ, self._output, self._find = environ, output, find
        self._trace, self._end = trace, end
        self.lease: Lease | Borrowed | None = None
        self.environment: dict[str, str] = {}
        #: When the waiting for devices was over, if that was told.
        self._turn_at = 0

    @property
    def over(self) -> PodwrightError | None:
        """Why it is not held any more."""
        return self.lease.reason if self.lease else None

    def hold(self, plan: Plan, remotes: Remotes, run: str) -> Lease | Borrowed:
        """Ask for it, and wait for it. run: as the server is to know this launch."""
        trace, asked = self._trace, clock()
        trace.begin("partition")
        trace.begin("waiting")
        self._turn_at = 0
        self.lease = lease = self._acquire(plan, remotes, run)
        partition = lease.partition
        turn = self._turn_at or (_made_at(partition.created_at) if lease.created else asked)
        turn = min(max(turn, asked), clock())
        trace.end(turn)
        trace.past("fabric", turn, clock(), made=lease.created)
        trace.end(name=partition.name, devices=partition.size, simulated=partition.simulated)
        return lease

    def _acquire(self, plan: Plan, remotes: Remotes, run: str) -> Lease | Borrowed:
        from podwright.client import OUR_TURN  # while mpirun is starting

        output = self._output
        found = self._found(plan)
        output.log("I", f"server {found.address} ({found.how})")

        def tell(line: str) -> None:
            if line.startswith(OUR_TURN):
                self._turn_at = clock()
            self._trace.happened("waiting line", told=line)
            output.say(f"POPRUN: {line}")
            output.flush()

        def between() -> None:
            remotes.idle()
            if self._end is not None and time.monotonic() > self._end:
                raise OutOfTime(f"--timeout: {plan.timeout:g} seconds are over")

        def again(error: PodwrightError) -> None:
            output.warn(f"{error.message} Trying again.")

        try:
            lease = _acquire(found, plan, again, tell, between, run)
        except BaseException:
            found.client.close()
            raise
        self._announce(plan, lease)
        host, port = _tcp_address(found)
        self.environment = partition_environment(
            lease.partition, plan.server_host or host, plan.server_port or port, self._environ
        )
        try:
            gpus = visible_gpus(lease.partition, len(plan.instances))
            if gpus:
                check_hosts(lease.partition, [i.host for i in plan.instances])
        except PodwrightError:
            lease.release()
            raise
        self.environment |= gpus
        if plan.move and not (lease.renewed and lease.partition.movable):
            output.warn(f"partition {lease.partition.name} is not movable: this launch stays on it")
        return lease

    def _found(self, plan: Plan) -> FoundServer:
        return (self._find or find)(plan, self._environ)

    def _announce(self, plan: Plan, lease: Lease | Borrowed) -> None:
        output, partition = self._output, lease.partition
        made = "created" if lease.created else "found"
        kind = "reconfigurable" if partition.reconfigurable else "non-reconfigurable"
        output.log("I", f"partition {partition.name}: {made}, {kind}, {partition.size} devices")
        if partition.simulated:
            output.say(f"SIMULATED: the devices of partition {partition.name} are simulated")
        if plan.print_topology or plan.verbosity > 1:
            output.out.add(plan.topology(partition.num_ilds).encode() + b"\n")

    def keeping(self, holding: Sequence[object], plan: Plan) -> Keeping:
        """What renews and gives back what is held, for a keeper."""
        from podwright.launcher._lease import Keeping

        return Keeping(holding, lambda: self._found(plan).client)

    def runs_on(self, hosts: Sequence[str]) -> None:
        """From now on instances may run on these hosts: the next renewal tells the server."""
        from podwright.launcher._lease import Lease

        if isinstance(self.lease, Lease):
            self.lease.hosts = list(dict.fromkeys(hosts))

    def lost(self, code: str, message: str) -> None:
        """The keeper says that it is over."""
        from podwright.launcher._lease import over

        if self.lease:
            self.lease.reason = over(code, message)

    def move(self, word: str) -> bool:
        """All instances have ended so that the launch can move: take what the server has for it."""
        from podwright.launcher._lease import Lease

        lease, output = self.lease, self._output
        assert isinstance(lease, Lease)
        before = lease.partition.gcds
        self._trace.begin("move", left=lease.machines)
        try:
            lease.move(word, output.warn)
        except PodwrightError as error:
            lease.reason = error
            self._trace.end(problem=error.message)
            return False
        self._trace.end(now=lease.machines)
        where = "where it was" if lease.partition.gcds == before else "on other devices"
        output.say(f"POPRUN: partition {lease.partition.name} is {where}; starting again")
        output.flush()
        return True

    def give_back(self, unsure: Sequence[str], gone: Sequence[str] | None) -> None:
        """Release it. unsure: hosts on which something may run. gone: those on which nothing does;
        None: all."""
        lease, self.lease = self.lease, None
        if not lease:
            return
        if unsure:
            self._output.warn(
                f"nobody knows whether instances still run on {', '.join(unsure)}: "
                "the devices are fenced before anybody else gets them"
            )
        self._trace.begin("giving back")
        problem = lease.release(gone)
        self._trace.end()
        if problem:
            self._output.warn(f"{lease.not_back}: {problem.message}")


def _made_at(seconds: float) -> int:
    """A time since 1970 on CLOCK_BOOTTIME, in nanoseconds."""
    return clock() - int((time.time() - seconds) * 1e9)


def _tcp_address(found: FoundServer) -> tuple[str, str]:
    """Host and port where instances reach the server; empty if it has only a socket."""
    host, _, port = found.address.rpartition(":")
    return ("", "") if "/" in host + port else (host.strip("[]"), port)


def find(plan: Plan, environ: Mapping[str, str]) -> FoundServer:
    """The server of a plan, in the design's order."""
    from podwright.client import ServerOptions, find_server

    options = ServerOptions(host=plan.server_host, port=plan.server_port, certs=plan.server_certs)
    return find_server(options, environ, timeout=plan.server_timeout)


def hosts_of(plan: Plan) -> list[str]:
    """Where the instances of a plan run, as the server is to know it: this host by its name."""
    names = dict.fromkeys(instance.host for instance in plan.instances)
    return [os.uname().nodename if name == "localhost" else name for name in names]


def in_name_of(request: AcquireRequest, program: Sequence[str]) -> AcquireRequest:
    """The request with words for others to read: which program, which process, on which host."""
    from msgspec.structs import replace

    from podwright.wire import holder_words

    return replace(request, holder=holder_words(_called(program), os.getpid(), os.uname().nodename))


def _called(program: Sequence[str]) -> str:
    """What a person would call a command line: `train.py` for `python3 -u train.py --fast`."""
    names = [os.path.basename(word) for word in program if word and not word.startswith("-")]
    first = names[0] if names else ""
    inline = any(word in ("-c", "-m") for word in program[1:3])
    if len(names) > 1 and not inline and first.rstrip("0123456789.") in _INTERPRETERS:
        return names[1]
    return first


def _acquire(
    found: FoundServer,
    plan: Plan,
    again: Callable[[PodwrightError], None],
    tell: Callable[[str], None],
    between: Callable[[], None],
    run: str,
) -> Lease | Borrowed:
    """The lease on a partition that is ACTIVE; what will not become so is tried again.

    tell, between: as `acquire_in_line` has them, where the plan says to wait. run: the name of the
    run, which all its processes have in their environment.
    """
    from msgspec.structs import replace

    from podwright.launcher._lease import VENDORS_ALONE, Borrowed, Lease

    client, attempts = found.client, plan.attempts
    request = in_name_of(plan.wanted.request(), plan.program)
    request = replace(request, hosts=hosts_of(plan), run=run)
    while True:
        attempts -= 1
        try:
            if found.info.apis == VENDORS_ALONE:
                from podwright.launcher._vendor_partition import borrow

                return Borrowed(client, *borrow(client, request), keep=request.keep)
            if plan.waits:
                from podwright.client import acquire_in_line

                reply = acquire_in_line(client, request, tell, between=between, question=_QUESTION)
                return Lease(client, reply)
            return Lease(client, client.acquire(request))
        except (WrongState, TimedOut, Internal) as error:
            if attempts <= 0:
                raise
            again(error)
