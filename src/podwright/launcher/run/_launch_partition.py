"""The partition of a launch: requested, held over all its starts, moved, and released."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.errors import Internal, PodwrightError, TimedOut, WrongState
from podwright.ground.plural import counted
from podwright.launcher.instances._exit_cause import TIMED_OUT
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.options._instance_environment import (
    check_hosts,
    partition_environment,
    visible_gpus,
)
from podwright.launcher.plan._plan import Plan
from podwright.timeline import TraceWriter, clock

if TYPE_CHECKING:
    from podwright.client import Client, FoundServer, NamedServer
    from podwright.launcher.watchers._lease import BorrowedPartition, KeptHolding, Lease
    from podwright.wire import AcquireRequest


#: Seconds that one question in the queue may take: in between, hosts and --timeout are checked.
_QUEUE_QUESTION_SECONDS = 4.0
#: Programs that run others. A person would call a command by the name of the other program.
_WRAPPER_PROGRAMS = ("python", "sh", "bash", "perl", "env", "time", "numactl")

Find = Callable[[Plan, Mapping[str, str]], "FoundServer"]


class OutOfTime(TimedOut):
    """The time of --timeout is over before anything was started."""

    exit_code = TIMED_OUT


class LaunchPartition:
    """lease: None when nothing is held. environment: the variables about the partition for
    instances.

    end: when --timeout is over.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        output: Output,
        find_server: Find | None,
        trace: TraceWriter,
        end: float | None,
    ) -> None:
        self._environ, self._output, self._find = environ, output, find_server
        self._trace, self._end = trace, end
        self.lease: Lease | BorrowedPartition | None = None
        self.environment: dict[str, str] = {}
        #: The last request, which has an id of its own.
        self._request: AcquireRequest | None = None
        #: When the wait for devices was over, if the server reported that.
        self._turn_at = 0

    @property
    def over(self) -> PodwrightError | None:
        """The error by which the lease ended. None: it is held, or there is none."""
        return self.lease.reason if self.lease else None

    @property
    def attached(self) -> bool:
        """Whether the devices are held and attached to hosts, so that other hosts have none."""
        return self.lease is not None and bool(self.lease.partition.hosts)

    def hold(
        self, plan: Plan, run_name: str, check_connections: Callable[[], None] = lambda: None
    ) -> Lease | BorrowedPartition:
        """Acquire the partition, and wait for it. run_name: of this launch, for the server.

        check_connections: raises HostsUnusable if a host was lost while the launch waits in a
        queue.
        """
        trace, requested_ns = self._trace, clock()
        trace.begin("partition")
        trace.begin("waiting")
        self._turn_at = 0
        lease = self._acquire(plan, run_name, check_connections)
        partition = lease.partition
        turn_ns = self._turn_at or (
            _boottime_ns(partition.created_at) if lease.created else requested_ns
        )
        turn_ns = min(max(turn_ns, requested_ns), clock())
        trace.end(turn_ns)
        trace.past("fabric", turn_ns, clock(), made=lease.created)
        trace.end(name=partition.name, devices=partition.size, simulated=partition.simulated)
        return lease

    def _acquire(
        self, plan: Plan, run_name: str, check_connections: Callable[[], None]
    ) -> Lease | BorrowedPartition:
        from msgspec.structs import replace

        from podwright.client import OUR_TURN  # while mpirun is starting

        output = self._output
        server = (self._find or find)(plan, self._environ)
        output.log("I", f"server {server.address} ({server.how})")

        def report(line: str) -> None:
            if line.startswith(OUR_TURN):
                self._turn_at = clock()
            self._trace.happened("waiting line", told=line)
            output.write_line(f"POPRUN: {line}")
            output.flush()

        def between() -> None:
            check_connections()
            if self._end is not None and time.monotonic() > self._end:
                raise OutOfTime(f"--timeout: the limit of {plan.timeout:g} s is over")

        def on_retry(error: PodwrightError) -> None:
            output.warn(f"{error.message} Trying again.")

        request = in_name_of(plan.wanted.request(), plan.program)
        request = replace(request, hosts=hosts_of(plan), run=run_name)
        try:
            self.lease = lease = self._ask_for_active_partition(
                server, plan, request, on_retry, report, between
            )
        except BaseException as error:
            if not isinstance(error, PodwrightError):
                self._give_back_interrupted(server, plan)
            server.client.close()
            raise
        self._announce(plan, lease)
        server_host, server_port = _tcp_address(server)
        self.environment = partition_environment(
            lease.partition,
            plan.server_host or server_host,
            plan.server_port or server_port,
            self._environ,
        )
        gpu_variables = visible_gpus(lease.partition, len(plan.instances))
        if gpu_variables or lease.partition.hosts:
            check_hosts(lease.partition, [instance.host for instance in plan.instances])
        self.environment |= gpu_variables
        if plan.move and not (lease.renewed and lease.partition.movable):
            output.warn(f"partition {lease.partition.name} is not movable: this launch stays on it")
        return lease

    def _ask_for_active_partition(
        self,
        server: FoundServer,
        plan: Plan,
        request: AcquireRequest,
        on_retry: Callable[[PodwrightError], None],
        report: Callable[[str], None],
        while_waiting: Callable[[], None],
    ) -> Lease | BorrowedPartition:
        """Return the lease on an ACTIVE partition. A partition that does not become ACTIVE is tried
        again.

        report, while_waiting: see `acquire_in_line`; used if the plan says to wait.
        """
        from msgspec.structs import replace

        from podwright.client import acquire_in_line
        from podwright.launcher.watchers._lease import VENDOR_PROTOCOLS, BorrowedPartition, Lease

        client, attempts_left = server.client, plan.attempts
        while True:
            attempts_left -= 1
            self._request = request = replace(request, request_id=os.urandom(16).hex())
            try:
                if server.info.apis == VENDOR_PROTOCOLS:
                    from podwright.launcher.plan._vendor_partition import borrow_partition

                    return BorrowedPartition(
                        client, *borrow_partition(client, request), keep_partition=request.keep
                    )
                if plan.waits:
                    reply = acquire_in_line(
                        client,
                        request,
                        report,
                        after_call=while_waiting,
                        poll_seconds=_QUEUE_QUESTION_SECONDS,
                    )
                    return Lease(client, reply)
                return Lease(client, client.acquire(request))
            except (WrongState, TimedOut, Internal) as error:
                if attempts_left <= 0:
                    raise
                on_retry(error)

    def _give_back_interrupted(self, server: FoundServer, plan: Plan) -> None:
        """Give back what the server may have given while a signal interrupted the request.

        The signal may also have come between the answer and the moment when the lease was noted. A
        second signal does not interrupt (`Signals`).
        """
        from podwright.client import take_back, withdraw
        from podwright.launcher.watchers._lease import VENDOR_PROTOCOLS
        from podwright.wire import WaitRequest

        request = self._request
        if self.lease or request is None or server.info.apis == VENDOR_PROTOCOLS:
            return
        with contextlib.suppress(PodwrightError):
            if plan.waits:
                wait_request = WaitRequest(
                    acquire=request, request_id=request.request_id, acknowledges=True
                )
                withdraw(server.client, wait_request)
            else:
                take_back(server.client, request)

    def _announce(self, plan: Plan, lease: Lease | BorrowedPartition) -> None:
        output, partition = self._output, lease.partition
        origin_text = "created" if lease.created else "found"
        kind_text = "reconfigurable" if partition.reconfigurable else "non-reconfigurable"
        output.log(
            "I",
            f"partition {partition.name}: {origin_text}, {kind_text}, "
            f"{counted(partition.size, 'device')}",
        )
        if partition.simulated:
            output.write_line(f"SIMULATED: the devices of partition {partition.name} are simulated")
        if plan.print_topology or plan.verbosity > 1:
            output.out.add(plan.topology(partition.num_ilds).encode() + b"\n")

    def keeping(self, lease_values: Sequence[object], plan: Plan) -> KeptHolding:
        """Return the object by which a keeper renews and releases the lease."""
        from podwright.client import reopen
        from podwright.launcher.watchers._lease import KeptHolding

        def reopened(server: NamedServer) -> Client:
            if self._find:
                return self._find(plan, self._environ).client
            return reopen(server, timeout=plan.server_timeout)

        return KeptHolding(lease_values, reopened)

    def note_running_hosts(self, hosts: Sequence[str]) -> None:
        """Note that instances may run on these hosts from now on. The next renewal tells the
        server.
        """
        from podwright.launcher.watchers._lease import Lease

        if isinstance(self.lease, Lease):
            self.lease.hosts = list(dict.fromkeys(hosts))

    def lost(self, error_code: str, message: str) -> None:
        """Record that the keeper reports the end of the lease."""
        from podwright.launcher.watchers._lease import over

        if self.lease:
            self.lease.reason = over(error_code, message)

    def move(self, word: str) -> bool:
        """Take the devices that the server has for the move, after all instances have ended.

        Returns whether it succeeded.
        """
        from podwright.launcher.watchers._lease import Lease

        lease, output = self.lease, self._output
        assert isinstance(lease, Lease)
        old_gcds = lease.partition.gcds
        self._trace.begin("move", left=lease.machines)
        try:
            lease.move(word, output.warn)
        except PodwrightError as error:
            lease.reason = error
            self._trace.end(problem=error.message)
            return False
        self._trace.end(now=lease.machines)
        where_text = "where it was" if lease.partition.gcds == old_gcds else "on other devices"
        output.write_line(
            f"POPRUN: partition {lease.partition.name} is {where_text}; starting again"
        )
        output.flush()
        return True

    def give_back(self, unsure_hosts: Sequence[str], cleared_hosts: Sequence[str] | None) -> None:
        """Release the partition.

        unsure_hosts: the hosts on which an instance may still run. cleared_hosts: the hosts on
        which no instance is left. None: all hosts of the launch.
        """
        lease, self.lease = self.lease, None
        if not lease:
            return
        if unsure_hosts:
            self._output.warn(
                f"{', '.join(unsure_hosts)} did not answer whether instances that were lost there "
                "still run: the devices are fenced before anybody else gets them"
            )
        self._trace.begin("giving back")
        release_error = lease.release(cleared_hosts)
        self._trace.end()
        if release_error:
            self._output.warn(f"{lease.release_warning}: {release_error.message}")


def _boottime_ns(unix_seconds: float) -> int:
    """Convert seconds since 1970 to CLOCK_BOOTTIME in nanoseconds."""
    return clock() - int((time.time() - unix_seconds) * 1e9)


def _tcp_address(server: FoundServer) -> tuple[str, str]:
    """Return host and port at which instances reach the server; empty if it has only a socket."""
    host, _, port = server.address.rpartition(":")
    return ("", "") if "/" in host + port else (host.strip("[]"), port)


def find(plan: Plan, environ: Mapping[str, str]) -> FoundServer:
    """Return the server of a plan, searched in the design's order."""
    from podwright.client import find_server

    return find_server(plan.server_options, environ, timeout=plan.server_timeout)


def hosts_of(plan: Plan) -> list[str]:
    """Return the hosts of a plan's instances under the server's names: this host by its own
    name.
    """
    host_names = dict.fromkeys(instance.host for instance in plan.instances)
    return [os.uname().nodename if name == "localhost" else name for name in host_names]


def in_name_of(request: AcquireRequest, program: Sequence[str]) -> AcquireRequest:
    """Return the request with a description for people: the program, the process, and the host."""
    from msgspec.structs import replace

    from podwright.wire import holder_words

    text = holder_words(f"poprun {_program_short_name(program)}", os.getpid(), os.uname().nodename)
    return replace(request, holder=text)


def _program_short_name(program: Sequence[str]) -> str:
    """Return a person's name for a command line: `train.py` for `python3 -u train.py --fast`."""
    base_names = [
        os.path.basename(argument)
        for argument in program
        if argument and not argument.startswith("-")
    ]
    first_name = base_names[0] if base_names else ""
    is_code_or_module = any(argument in ("-c", "-m") for argument in program[1:3])
    if (
        len(base_names) > 1
        and not is_code_or_module
        and first_name.rstrip("0123456789.") in _WRAPPER_PROGRAMS
    ):
        return base_names[1]
    return first_name
