"""A plan carried out: watchers, lease, start, wait, release."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest, PodwrightError
from podwright.ground import plugins
from podwright.hosts import become_subreaper
from podwright.launcher.hosts._host_sweep import sweep_hosts
from podwright.launcher.hosts._relay_protocol import HostsUnusable
from podwright.launcher.hosts._remote_hosts import Remotes
from podwright.launcher.instances._divide_gpus import InstancePlacement, simulated
from podwright.launcher.instances._exit_cause import Cause
from podwright.launcher.instances._function_exchange import Exchange, Results, append
from podwright.launcher.instances._instance_binding import bind
from podwright.launcher.instances._instance_output import InstanceOutput, StreamOptions
from podwright.launcher.instances._instance_wrapper import make_wrapper, restore
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.instances._run_folder import RUN_VARIABLE, RunFolder, sweep
from podwright.launcher.options._instance_environment import (
    IPC_VARIABLE,
    SIMULATED_VARIABLE,
)
from podwright.launcher.options._move_notice import MOVE_SIGNAL_VARIABLE
from podwright.launcher.plan._check_program import check_program
from podwright.launcher.plan._executable_cache import CACHE_VARIABLE, TEMPORARY_CACHE
from podwright.launcher.plan._plan import Plan
from podwright.launcher.run._attempt import Attempt, OwnInstances, StartOrder
from podwright.launcher.run._connect_hosts import meeting_point, start_relays
from podwright.launcher.run._launch_partition import Find, LaunchPartition, hosts_of
from podwright.launcher.run._mpi_arguments import local_arguments, own_variables
from podwright.launcher.run._mpirun_engine import Command, Engine, LocalProcesses, Mpirun
from podwright.launcher.run._watch_launch import Watch
from podwright.launcher.watchers._join_cgroup import agent_may_confine
from podwright.launcher.watchers._lease_clock import LeaseClock
from podwright.launcher.watchers._lease_keeper import KeeperProcess
from podwright.launcher.watchers._signals import Interrupted, Signals, signals
from podwright.launcher.watchers._stop_detection import LoopTurns
from podwright.timeline import OFF, TraceWriter, open_file

if TYPE_CHECKING:
    from podwright.launcher.watchers._fork_server import ForkServer
    from podwright.launcher.watchers._lease import KeptHolding

#: In the environment of all instances: how often they were restarted.
RESTART_VARIABLE = "PODWRIGHT_RESTART"
#: What connects the instances: mpi or tcp (popdist).
BACKEND_VARIABLE = "POPDIST_BACKEND"


#: The names of the start of instances: with mpirun, and without.
_START_SPAN_NAMES = ("MPI start", "start")


class LaunchTools(NamedTuple):
    """What a launch uses beside its plan and environment.

    find: finds the server; None for the usual way. signals: those that poprun receives. exchange:
    the payload for instances and their results, beside arguments and output.
    """

    output: Output
    engine: Engine
    signals: Signals
    find: Find | None = None
    exchange: Exchange | None = None


class LaunchResult(NamedTuple):
    """How a launch ended: poprun's exit code, and the cause if it did not end well by itself."""

    code: int
    cause: Cause | None = None


def launch(
    plan: Plan,
    environ: Mapping[str, str],
    *,
    output: Output | None = None,
    engine: Engine | None = None,
    find: Find | None = None,
    exchange: Exchange | None = None,
) -> LaunchResult:
    """Run a plan to its end. Raises PodwrightError if it cannot be run.

    exchange: the payload for instances and their results, beside arguments and output.
    """
    output = output or Output(verbosity=plan.verbosity, environ=environ)
    if plan.ipc:
        environ = {**environ, IPC_VARIABLE: plan.ipc}
    for note in plan.notes:
        output.warn(note)
    try:
        with signals() as caught_signals:
            engine = engine or _make_engine(plan, environ)
            tools = LaunchTools(output, engine, caught_signals, find, exchange)
            return _launch_plan(plan, environ, tools)
    except Interrupted as interruption:
        return LaunchResult(128 + interruption.number)
    finally:
        output.flush()


def _make_engine(plan: Plan, environ: Mapping[str, str]) -> Engine:
    if plan.launcher == "mpirun":
        return Mpirun(environ)
    if plan.launcher in ("local", "srun"):
        return LocalProcesses()
    plugin_engine: Engine = plugins.load_function(plugins.LAUNCHERS, plan.launcher)(environ)
    return plugin_engine


def _launch_plan(plan: Plan, environ: Mapping[str, str], tools: LaunchTools) -> LaunchResult:
    output = tools.output
    if not any("PATH" in local_arguments(instance.mpi_arguments)[0] for instance in plan.instances):
        check_program(plan.program[0], environ)
    if plan.log_folder:
        _make_folder("--log-dir", plan.log_folder)
    if plan.offline and plan.print_topology:
        output.out.add(plan.topology().encode() + b"\n")
    if plan.gpus and simulated(environ):
        output.write_line("SIMULATED: the GPUs of this job exist only in software")
    if plan.given and environ.get(SIMULATED_VARIABLE):
        output.write_line(f"SIMULATED: the devices of partition {plan.wanted.name} are simulated")
    for name in sweep(environ):
        output.log("I", f"removed what the abandoned run {name} had left")
    ssh_key = ""
    if any(plan.preparation):
        from podwright.launcher.plan._prepare_hosts import prepare

        ssh_key = prepare(plan.preparation, plan.hosts, environ, output)
    trace = TraceWriter(open_file(plan.trace), len(plan.instances)) if plan.trace else OFF
    if trace.on:
        trace.begin("launch", **_launch_description(plan, environ))
    end_fields: dict[str, str | int] = {"cause": "poprun was ended"}
    run = _Run(plan, environ, tools, ssh_key, trace)
    try:
        cause = run.attempt()
        while run.starts_again(cause):
            cause = run.attempt()
        exit_code = run.report(cause)
        end_fields = {"code": exit_code, **({"cause": cause.text} if cause else {})}
        return LaunchResult(exit_code, cause)
    except PodwrightError as error:
        end_fields = {"cause": error.message}
        raise
    finally:
        tools.signals.ignore()
        run.release()
        trace.close(**end_fields)
        if trace.on and trace.problem:
            output.warn(f"--trace: {plan.trace}: {trace.problem}; the timeline is not whole")


def _launch_description(plan: Plan, environ: Mapping[str, str]) -> dict[str, str | int]:
    """Return a description of a launch for the readers of its timeline."""
    this_host = os.uname().nodename
    hosts = [this_host if host == "localhost" else host for host in plan.hosts]
    description: dict[str, str | int] = {
        "program": " ".join(plan.program)[:400],
        "instances": len(plan.instances),
        "hosts": ",".join(hosts),
    }
    if "SLURM_JOB_ID" in environ:
        description["slurm_job"] = environ["SLURM_JOB_ID"]
    return description


class _Run:
    """One launch: the partition that it holds, and each start of all its instances."""

    def __init__(
        self,
        plan: Plan,
        environ: Mapping[str, str],
        tools: LaunchTools,
        ssh_key: str = "",
        trace: TraceWriter = OFF,
    ) -> None:
        self._key, self._trace = ssh_key, trace
        self._requested_plan = self._plan = plan
        self._environ, self._tools, self._output = environ, tools, tools.output
        self._keeper: KeeperProcess | None = None
        self._forker: ForkServer | None = None
        #: The hosts on which processes may be left.
        self._unsure_hosts: list[str] = []
        #: The commands that sweep lost hosts.
        self._sweep_commands: dict[str, list[str]] = {}
        self._name = ""
        self._last_words: list[bytes] = []
        self._restarts = self._moves = 0
        self._move_token = ""
        self._fenced_at = self._login_s = 0.0
        self._end = time.monotonic() + plan.timeout if plan.timeout else None
        self._partition = LaunchPartition(environ, tools.output, tools.find, trace, self._end)

    def attempt(self) -> Cause | None:
        """Start all instances and watch them to their end. Returns the cause if they did not end
        well.

        Each stage takes what those before it made.
        """
        self._trace.attempt(self._restart_count + 1)
        attempt = self._begin_attempt()
        try:
            attempt.remotes = self._meet(attempt.folder)
            here = self._prepare(attempt)
            order = self._order(attempt, here)
            self._start_early(attempt, order)
            late_variables = self._take_partition(attempt)
            watch = self._start(attempt, order, late_variables)
            return self._watch_to_end(attempt, watch)
        finally:
            self._trace.started()
            self._trace.end_to(1)
            attempt.close()

    def _begin_attempt(self) -> Attempt:
        """Make the folder and the keeper. The server knows all attempts by one name."""
        if self._keeper:
            self._keeper.close()  # otherwise it would remove the new folder
            self._keeper = None
        pid_namespace = self._requested_plan.pid_namespace
        close_handles = [
            *self._tools.signals.handles,
            *([self._trace.handle] if self._trace.on else ()),
        ]
        if self._requested_plan.max_restarts or self._requested_plan.move:
            self._forker = self._forker or self._fork_server()
            close_handles.append(self._forker.handle)
        fork_server = self._forker if self._restart_count else None
        attempt = Attempt(
            self._environ,
            self._name,
            self,
            close_handles,
            namespace=pid_namespace,
            fork_server=fork_server,
        )
        self._name, self._keeper = attempt.name, attempt.keeper
        if self._partition.lease:
            self._keeper.hold(self._partition.lease.holding)
        return attempt

    def _meet(self, folder: RunFolder) -> Remotes:
        """Connect the hosts, and ask meanwhile whether Slurm granted adjacent nodes."""
        asks_placement = self._plan.gpus and len(self._plan.hosts) > 1 and not self._restart_count
        placement = InstancePlacement(self._environ) if asks_placement else None
        remotes = self._connect(folder)
        if placement:
            with remotes.kept_alive():
                placement_problem = placement.problem(self._plan.hosts)
            if placement_problem:
                self._output.warn(placement_problem)
        return remotes

    def _connect(self, folder: RunFolder) -> Remotes:
        """Connect the hosts. After a restart, only those that can be used are needed."""
        self._plan = plan = self._requested_plan
        healthy_hosts: list[str] = []
        relay_options = {"returns": self._tools.exchange is not None, "traces": self._trace.on}
        self._trace.begin("hosts")
        while True:
            try:
                remotes = start_relays(
                    self._plan, folder, self._environ, self._output, self._key, **relay_options
                )
                for remote in sorted(remotes, key=lambda remote: remote.reached):
                    self._trace.happened("host reached", remote.reached, host=remote.host)
                self._trace.end()
                return remotes
            except HostsUnusable as error:
                candidate_hosts = healthy_hosts or [*plan.hosts, *plan.spares]
                healthy_hosts = [
                    host for host in candidate_hosts if host not in error.data["hosts"]
                ]
                if not self._restarts or not healthy_hosts or self._partition.attached:
                    raise
                self._plan = plan.over(healthy_hosts)
                hosts_text = ", ".join(self._plan.hosts)
                self._output.warn(f"{error.problem}; all instances are started on {hosts_text}")
                self._trace.happened("other hosts", hosts=hosts_text, cause=error.problem)

    def _prepare(self, attempt: Attempt) -> OwnInstances:
        """Make the script in front of each instance of this host, with its cores, its GPUs and its
        own variables.
        """
        plan, folder, remotes = self._plan, attempt.folder, attempt.remotes
        if self._restart_count:
            self._report_hosts_to_keeper(attempt.keeper)
        variables_by_rank = {
            instance.rank: own_variables(instance)
            for instance in plan.instances
            if instance.rank not in remotes.ranks
        }
        bound_variables = bind(variables_by_rank, plan.placement, self._environ, plan.gpus)
        exchange = self._tools.exchange
        wrapper = make_wrapper(
            folder, bound_variables, returns=exchange is not None, traces=self._trace.on
        )
        if exchange:
            append(folder.local_path(folder.file("payload")), exchange.payload)
            remotes.send_payload(exchange.payload)
        program = [*restore(folder, self._environ), *plan.program]
        return OwnInstances(list(variables_by_rank), wrapper, program)

    def _order(self, attempt: Attempt, here: OwnInstances) -> StartOrder:
        """Make the command for all instances, and the variables that poprun itself adds."""
        plan, folder, remotes = self._plan, attempt.folder, attempt.remotes
        command = self._tools.engine.command(plan, folder, here.wrapper, here.program, remotes)
        for note in command.notes if not self._restart_count else ():
            self._output.warn(note)
        self._output.log("D", " ".join(f"'{argument}'" for argument in command.argv))
        added_variables = {
            **self._make_cache_folder(),
            **self._peer_secret_variables(folder, remotes),
            **command.environment,
            RUN_VARIABLE: folder.name,
            RESTART_VARIABLE: str(self._restart_count),
            **({MOVE_SIGNAL_VARIABLE: str(plan.move[0])} if plan.move else {}),
        }
        return StartOrder(command, here, plan.program, plan.environment, added_variables)

    @property
    def _needs_partition(self) -> bool:
        return self._plan.asks and not self._partition.lease

    def _start_early(self, attempt: Attempt, order: StartOrder) -> None:
        """Start mpirun while the partition is requested, if it may begin by then."""
        must_wait = order.command.plain or attempt.remotes or self._plan.waits
        if self._needs_partition and not (must_wait or agent_may_confine(self._environ)):
            self._trace.starting(_START_SPAN_NAMES[order.command.plain])
            attempt.start_engine(order)
        if self._trace.on:
            self._trace.open()
            self._index_trace_file(run=attempt.name, slurm=self._environ.get("SLURM_JOB_ID", ""))

    def _take_partition(self, attempt: Attempt) -> dict[str, str]:
        """Acquire the lease, unless it is held, and let the keeper renew it. Returns the variables
        that were not known before.
        """
        become_subreaper()
        if self._needs_partition:
            with attempt.remotes.kept_alive() as connections:
                lease = self._partition.hold(self._plan, attempt.folder.name, connections)
            self._index_trace_file(partition=lease.partition.name)
            if lease.holding:
                attempt.keeper.hold(lease.holding)
        met = meeting_point(self._plan.instances[0], self._plan.subnet, attempt.remotes)
        return {**self._partition.environment, **met}

    def _start(
        self, attempt: Attempt, order: StartOrder, late_variables: Mapping[str, str]
    ) -> Watch:
        """Start the instances, or let those begin that mpirun has started early."""
        attempt.give(late_variables)
        watch = self._make_watch(attempt, order.command)
        if not attempt.early:
            self._trace.starting(_START_SPAN_NAMES[order.command.plain])
        attempt.start(order, late_variables)
        return watch

    def _make_watch(self, attempt: Attempt, command: Command) -> Watch:
        wake_handle = self._tools.signals.collect()
        plan, output, lease = self._plan, self._output, self._partition.lease
        instance_output = InstanceOutput(
            attempt.folder,
            StreamOptions(
                len(plan.instances), plan.only_output_from, plan.timestamps, plan.log_folder or ""
            ),
            output,
            remote_instances=attempt.remotes.ranks,
            result_files=Results(self._tools.exchange.folder) if self._tools.exchange else None,
            trace=self._trace,
            variables=self._instance_variables,
        )
        lease_seconds = plan.wanted.ttl if lease and lease.renewed else 0.0
        watch = Watch(
            attempt,
            plan,
            output,
            written=instance_output,
            wake=wake_handle,
            lease=LeaseClock(lease_seconds, self._partition.lost, LoopTurns()),
            deadline=self._end,
            mpirun=not command.plain,
        )
        attempt.watched()
        return watch

    def _instance_variables(self, rank: int) -> dict[str, str]:
        """Return an instance's environment, as far as options and the user determine it."""
        plan = self._plan
        return {**self._environ, **dict(plan.environment), **own_variables(plan.instances[rank])}

    def _watch_to_end(self, attempt: Attempt, watch: Watch) -> Cause | None:
        """Watch until all have ended, and make sure of lost hosts."""
        remotes = attempt.remotes
        self._login_s = remotes.login_s
        attempt.keeper.hosts(remotes.sweepers(lost=False), self._login_s)
        cause = watch.run()
        self._move_token = watch.move_word
        if lost_hosts := remotes.sweepers(lost=True):
            self._output.log("I", f"making sure that nothing is left on {', '.join(lost_hosts)}")
            self._output.flush()
            self._unsure_hosts += sweep_hosts(lost_hosts, self._environ, self._login_s)
            self._sweep_commands |= lost_hosts
        if cause and cause.instance >= 0:
            self._last_words = watch.last_words(cause.instance)
        self._fenced_at = remotes.fenced_at if self._unsure_hosts else 0.0
        return cause

    def _fork_server(self) -> ForkServer:
        from podwright.launcher.watchers._fork_server import ForkServer
        from podwright.launcher.watchers._lease_keeper import keep

        def work(folders: tuple[str, ...], handles: Sequence[int]) -> int:
            return keep(self, folders, handles, namespace=self._requested_plan.pid_namespace)

        return ForkServer(work, close_handles=self._tools.signals.handles)

    # The means of the keeper

    def open(self, holding: Sequence[object]) -> KeptHolding:
        """Return the object that renews and releases what this launch holds."""
        return self._partition.keeping(holding, self._plan)

    def cleared_hosts(
        self, sweepers: Mapping[str, Sequence[str]], login_s: float
    ) -> list[str] | None:
        """Sweep hosts. Returns the hosts on which nothing is left. None: all hosts."""
        self._unsure_hosts = sweep_hosts(sweepers, self._environ, login_s)
        return self._surely_cleared_hosts()

    def _surely_cleared_hosts(self) -> list[str] | None:
        if not self._unsure_hosts:
            return None
        hosts = dict.fromkeys([*hosts_of(self._requested_plan), *hosts_of(self._plan)])
        return [host for host in hosts if host not in self._unsure_hosts]

    def _report_hosts_to_keeper(self, keeper: KeeperProcess) -> None:
        """After a restart, report the hosts on which instances may run.

        Hosts that have not confirmed their end still count.
        """
        lease = self._partition.lease
        if lease and lease.renewed:
            self._partition.note_running_hosts([*hosts_of(self._plan), *self._unsure_hosts])
            keeper.hold(lease.holding)

    def _index_trace_file(self, **index_names: str) -> None:
        """Let `podwright trace` find the file by these names."""
        if self._trace.on:
            from podwright.timeline import note

            note(self._environ, self._plan.trace, **index_names)

    def _make_cache_folder(self) -> dict[str, str]:
        """Make the folder for executables. A temporary one is in each host's own run folder."""
        path = self._plan.cache
        if path == TEMPORARY_CACHE:
            return {CACHE_VARIABLE: TEMPORARY_CACHE}
        if path:
            _make_folder("--executable-cache-path", path)
        return {}

    def _peer_secret_variables(self, folder: RunFolder, remotes: Remotes) -> dict[str, str]:
        """Return the variables by which instances without MPI authenticate each other (popdist)."""
        backend = self._environ.get(BACKEND_VARIABLE)
        if self._plan.launcher == "mpirun" and backend != "tcp":
            return {}
        variables = {BACKEND_VARIABLE: backend or "tcp"}
        secret = os.urandom(32).hex()
        if remotes:  # no file exists on all hosts; nobody else may read a process's environment
            return {**variables, "POPDIST_SECRET": secret}
        path = folder.file("secret")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(folder.local_path(path), flags, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secret)
        return {**variables, "POPDIST_SECRET_FILE": path}

    def starts_again(self, cause: Cause | None) -> bool:
        """Return whether to restart after this end: of an instance, a host or the partition, if
        allowed.
        """
        if cause and cause.moved and not self._unsure_hosts:
            self._moves += 1
            self._output.flush()
            self._tools.signals.interrupt()
            return self._partition.move(self._move_token)
        if cause is None or not cause.restartable:
            return False
        if self._restarts >= self._plan.max_restarts:
            return False
        self._restarts += 1
        self._trace.happened("restart", number=self._restarts, cause=cause.text)
        self._output.warn(
            f"{cause.text}; starting all instances again "
            f"({self._restarts} of {self._plan.max_restarts})"
        )
        self._last_words = []
        self._output.flush()
        self._tools.signals.interrupt()
        time.sleep(max(self._fenced_at - time.monotonic(), 0.0))
        if self._partition.over:
            self._give_back()  # its devices are gone: the next attempt requests others
        return True

    @property
    def _restart_count(self) -> int:
        """How often the instances were restarted."""
        return self._restarts + self._moves

    def report(self, cause: Cause | None) -> int:
        """Print why the launch ended. Returns the exit code."""
        if cause is None:
            return 0
        if cause.instance >= 0:
            lines = self._last_words
            self._output.error(
                f"{cause.text}{'. Its last lines:' if lines else ', and wrote nothing'}"
            )
            for line in lines:
                self._output.err.add(b"  " + line + b"\n")
        elif error := self._partition.over:
            self._output.error(f"{cause.text}: {error.message}")
        else:
            self._output.error(cause.text)
        return cause.code

    def release(self) -> None:
        """Release the partition, and wait for the end of the keeper."""
        if self._restarts and self._unsure_hosts:
            # A lost host may have ended its instances since, or been restarted.
            sweep_commands = {
                host: self._sweep_commands[host]
                for host in self._unsure_hosts
                if host in self._sweep_commands
            }
            unreachable_hosts = [host for host in self._unsure_hosts if host not in sweep_commands]
            still_unsure = sweep_hosts(sweep_commands, self._environ, self._login_s)
            self._unsure_hosts = [*unreachable_hosts, *still_unsure]
        self._give_back()
        if self._keeper:
            self._keeper.close()
        if self._forker:
            self._forker.close()

    def _give_back(self) -> None:
        self._partition.give_back(self._unsure_hosts, self._surely_cleared_hosts())


def _make_folder(option: str, path: str) -> None:
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{option}: {path}: {error.strerror}") from None
