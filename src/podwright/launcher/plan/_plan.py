"""The plan of a launch: a frozen value, made from options and environment alone, that prints
itself.

Making it contacts nothing and changes nothing. It does not contain what only the server knows. The
partition that it requests follows the PopRun guide, section 2.8.3: as many devices as the replicas
need, one GCD per instance, and as many partition replicas as instances.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from podwright.endpoints import SOCKET_VARIABLE
from podwright.errors import InvalidRequest
from podwright.hosts import (
    WORKER_VARIABLE,
    WORKERS_VARIABLE,
    Cores,
    find_program,
    fold,
    shared_host,
)
from podwright.launcher.instances._gpus import visibility
from podwright.launcher.instances._profiling import AUTOREPORT_VARIABLE, check_profiling
from podwright.launcher.options._environment import (
    SERVER_TIMEOUT,
    TARGET_VARIABLE,
    TIMEOUT_VARIABLE,
    common_environment,
    instance_environment,
    local_index_environment,
    whose_ipc,
)
from podwright.launcher.options._move_notice import MOVE_SECONDS, MOVE_SIGNAL, signal_name
from podwright.launcher.options._offline import offline_options
from podwright.launcher.options._option_table import LONGEST_FENCE, SHORTEST_FENCE
from podwright.launcher.options._options import Options
from podwright.launcher.options._placement import FLAGS, InstancePlace, places
from podwright.launcher.plan._cache import CACHE_VARIABLE, TEMPORARY, cache_path
from podwright.launcher.plan._host_selection import HostChoice, choose_hosts
from podwright.launcher.plan._prepare import Preparation, preparation
from podwright.launcher.plan._topology_table import topology_table
from podwright.launcher.plan._wanted_partition import WantedPartition, check_sync_type

if TYPE_CHECKING:
    from podwright.wire import AcquireRequest

BY_SERVER = "decided by the server"
HOST_VARIABLE = "IPUOF_VIPU_API_HOST"
PORT_VARIABLE = "IPUOF_VIPU_API_PORT"
PARTITION_VARIABLE = "IPUOF_VIPU_API_PARTITION_ID"
#: The lease of the surrounding job, if it has one: this launch takes its lease within that one.
LEASE_VARIABLE = "PODWRIGHT_LEASE"
#: The job's own allocation, under host mapping.
ALLOCATION_VARIABLE = "PODWRIGHT_ALLOCATION"
#: Seconds that a lease lasts without renewal; the keeper renews it every few (_lease_keeper).
LEASE_TTL = 300.0
#: Overrides these seconds: at least a few renewals, at most what the server grants.
FENCE_VARIABLE = "PODWRIGHT_FENCE_AFTER"
#: Seconds between asking instances to end and killing them; less in Slurm, which kills after 30
#: (its KillWait).
GRACE = 30.0
GRACE_IN_SLURM = 20.0


class Instance(NamedTuple):
    """One process to start. environment: its variables beyond those that all get."""

    rank: int
    host: str
    local_index: int
    replicas: int
    environment: tuple[tuple[str, str], ...]
    mpi_arguments: tuple[str, ...] = ()
    place: InstancePlace | None = None


class Plan(NamedTuple):
    """A launch, decided. wanted: the partition to request from the server.

    server_host, server_port: the server's address, or empty. environment: the variables of all
    instances, without those that depend on the partition. cache: the folder for executables: a
    path, TEMPORARY, or none. offline: no server, no devices. timeout, grace: seconds for the whole
    launch, and from asking an instance to end to killing it. notes: messages for the user about the
    given options. launcher: mpirun, local or srun. by_slurm: srun reaches the other hosts instead
    of ssh. by_workers: all hosts are workers of a Kubernetes job. placement: how each of several
    hosts places its instances; on one host the instances have places. gpus: the number of GPUs of
    each instance and which of them it sees, if Slurm granted them; then no server is asked, and
    each host places its own instances. given: the job's operator holds the partition, so no server
    is asked either. subnet: the one between the hosts, as the user named it; empty if it must be
    found. spares: hosts that are used after the loss of others. move: the signal that tells
    instances to end so that the launch can move, and the seconds that this loses; None: the launch
    cannot move. waits: whether it waits in the server's queue for devices. trace: the file for the
    launch's timeline, or empty.
    """

    program: tuple[str, ...]
    replicas: int
    ipus_per_replica: int
    instances: tuple[Instance, ...]
    wanted: WantedPartition
    environment: tuple[tuple[str, str], ...]
    server_host: str = ""
    server_certs: str = ""
    server_port: str = ""
    server_timeout: float = SERVER_TIMEOUT
    attempts: int = 1
    mpi_arguments: tuple[str, ...] = ()
    run_as_root: bool | None = None
    only_output_from: int | None = None
    print_topology: bool = False
    verbosity: int = 0
    cache: str = ""
    offline: bool = False
    log_folder: str = ""
    timestamps: bool = False
    timeout: float | None = None
    grace: float = GRACE
    max_restarts: int = 0
    pid_namespace: bool = True
    ipc: str = ""
    notes: tuple[str, ...] = ()
    launcher: str = "mpirun"
    by_slurm: bool = False
    by_workers: bool = False
    subnet: str = ""
    placement: str = "disabled"
    gpus: tuple[Any, ...] = ()
    preparation: Preparation = Preparation()
    waits: bool = False
    spares: tuple[str, ...] = ()
    trace: str = ""
    move: tuple[int, float] | None = None
    given: bool = False

    @property
    def asks(self) -> bool:
        """Whether a server is asked for a partition."""
        return not (self.offline or self.gpus or self.given)

    @property
    def request(self) -> AcquireRequest:
        """The request to the server."""
        return self.wanted.request()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, in order."""
        return tuple(dict.fromkeys(instance.host for instance in self.instances))

    def over(self, hosts: Sequence[str]) -> Plan:
        """Return the plan over the first of these hosts, as many as divide the instances evenly."""
        count = len(self.instances)
        used = max(n for n in range(1, len(hosts) + 1) if count % n == 0)
        share = count // used
        moved = []
        for i in self.instances:
            own = {**dict(i.environment), **local_index_environment(i.rank % share)}
            moved.append(
                i._replace(
                    host=hosts[i.rank // share],
                    local_index=i.rank % share,
                    environment=tuple(own.items()),
                )
            )
        common = {**dict(self.environment), "LOCAL_WORLD_SIZE": str(share)}
        return self._replace(instances=tuple(moved), environment=tuple(common.items()))

    def topology(self, ilds: int = 0) -> str:
        """Return the table of hosts, link domains, instances and replicas, with places below it.

        ilds: 0 if not yet known.
        """
        hosts = [instance.host for instance in self.instances]
        number = ilds or self.wanted.ilds
        places = "".join(f"\ninstance {i.rank}: {i.place}" for i in self.instances if i.place)
        return topology_table(hosts, self.replicas, number or BY_SERVER) + places

    @property
    def _without(self) -> str:
        """Why no server is asked; empty if one is."""
        if self.given:
            return "none: the job's operator holds its partition"
        return "none: offline" if self.offline else "none: Slurm gave the GPUs" if self.gpus else ""

    def _ways(self) -> list[tuple[str, str]]:
        """Return the lines about hosts and launchers that differ from the usual."""
        lines = []
        if len(self.hosts) > 1:
            starter = "srun" if self.by_slurm else "job" if self.by_workers else "ssh"
            lines.append(("hosts", f"{len(self.hosts)}, by {starter}: {fold(self.hosts)}"))
            lines.append(("  subnet", self.subnet or "found when hosts are met"))
            lines.append(("  placement", f"{self.placement}, from the cores of each host"))
        lines += self.preparation.lines()
        if self.gpus:
            each, how = self.gpus
            lines.append(("GPUs", f"{each} of each instance, nearest first, of Slurm's grant"))
            lines.append(("  seen", "its own" if how == "task" else "all of its host"))
        if self.launcher != "mpirun":
            lines.append(("launcher", self.launcher))
        return lines

    def __str__(self) -> str:
        wanted = self.wanted
        server = self.server_host and f"{self.server_host}:{self.server_port or 8090}"
        fate = "kept" if wanted.keep else "removed at the end"
        move_signal = signal_name(self.move[0]) if self.move else ""
        reset = {None: "unless it is reconfigurable", True: "yes", False: "no"}[wanted.reset]
        partition = [
            ("partition", wanted.name or BY_SERVER),
            *([("  within", f"lease {wanted.parent}")] if wanted.parent else ()),
            ("  allocation", wanted.allocation or BY_SERVER),
            ("  devices", str(wanted.devices)),
            ("  GCDs", str(wanted.instances)),
            ("  replicas", str(wanted.instances)),
            ("  ILDs", str(wanted.ilds or BY_SERVER)),
            ("  if missing", f"created, and {fate}" if wanted.create else "refused"),
            ("  if unfit", f"replaced, and {fate}" if wanted.update else "refused"),
            ("  reset", reset),
            *([("  if not free", "waited for")] if self.waits else ()),
            *([("  moves", f"once all instances listen to {move_signal}")] if move_signal else ()),
        ]
        lines = [
            ("program", shlex.join(self.program)),
            ("replicas", f"{self.replicas} of {self.ipus_per_replica} devices"),
            ("instances", f"{len(self.instances)} of {self.instances[0].replicas} replicas"),
            *self._ways(),
            ("server", self._without or server or "found when it is needed"),
            *([] if self._without else partition),
            ("cache", f"{self.cache or 'none'}"),
        ]
        text = "".join(f"{name + ':':<16} {value}\n" for name, value in lines)
        text += "environment of all instances:\n"
        text += "".join(f"  {name}={shlex.quote(value)}\n" for name, value in self.environment)
        for instance in self.instances:
            own = " ".join(f"{name}={shlex.quote(value)}" for name, value in instance.environment)
            text += f"instance {instance.rank} on {instance.host}: {own}\n"
            if instance.mpi_arguments:
                text += f"  for mpirun: {shlex.join(instance.mpi_arguments)}\n"
        return text + self.topology()


def _even_counts(replicas: int, instances: int) -> str:
    """Return options with numbers that divide evenly.

    torchrun's processes are instances of one replica each.
    """
    more = -(-replicas // instances) * instances
    return (
        f"Write --num-replicas {more} --num-instances {instances}, or "
        f"--num-replicas {replicas} --num-instances N, where N is {_listed(_divisors(replicas))}. "
        f"For what torchrun starts with --nproc-per-node {instances}: "
        f"--num-replicas {instances} --num-instances {instances}"
    )


def make_plan(
    options: Options,
    environ: Mapping[str, str],
    host: str = "localhost",
    cores: Cores | None = None,
) -> Plan:
    """Return the plan of `options`, checked. Raises InvalidRequest for what can never work.

    cores: those of the host, as far as they are known (see `places_instances`).
    """
    count, replicas = options.num_instances, options.num_replicas
    notes = []
    if not options.program:
        raise InvalidRequest(
            "there is no program to run", would_work="Name one after the options: poprun … train.py"
        )
    if replicas % count:
        raise InvalidRequest(
            f"{replicas} replicas do not divide evenly among {count} instances",
            would_work=_even_counts(replicas, count),
        )
    if replicas == 1:
        notes.append("1 replica in 1 instance: poprun is not needed for that, and costs time")
    strategy = _strategy(options, notes)
    if options.vipu_cluster:
        notes.append("--vipu-cluster is deprecated; write --vipu-allocation")
    only = options.only_output_from_instance
    if only is not None and only >= count:
        raise InvalidRequest(
            f"--only-output-from-instance={only}: there is no such instance",
            would_work=f"There are 0 to {count - 1}",
        )
    where = choose_hosts(options, environ, host)
    if where.spares and not where.by_slurm:
        notes.append(f"{count} instances run on {fold(where.hosts)}; {fold(where.spares)}: spare")
    wanted = _wanted(options, environ)
    if options.vipu_wait and not wanted.create:
        notes.append("--vipu-wait has no effect: what the job was given is all there is")
    move = _move(options, notes)
    gpus = _gpus(options, environ)
    if gpus or len(where.hosts) > 1 or where.hosts[0] not in ("localhost", host):
        cores = None
    timeout = options.vipu_server_timeout or SERVER_TIMEOUT
    instances = _instances(options, where.hosts)
    arguments = [instance.mpi_arguments for instance in instances]
    cache = cache_path(options.executable_cache_path, count, environ, arguments, notes)
    own = {TIMEOUT_VARIABLE: f"{timeout:g}"}
    if cache not in ("", TEMPORARY):
        own[CACHE_VARIABLE] = cache
    if options.autoreport_dir:
        check_profiling(environ, arguments)
        own[AUTOREPORT_VARIABLE] = options.autoreport_dir
    if options.offline_target:
        own[TARGET_VARIABLE] = _offline_target(options)
    # A socket identifies the caller, which an address does not. If both are named, the socket is
    # used.
    named = {} if environ.get(SOCKET_VARIABLE) else environ
    return Plan(
        program=options.program,
        replicas=replicas,
        ipus_per_replica=options.ipus_per_replica,
        instances=_placed(instances, strategy, cores),
        wanted=wanted,
        environment=tuple(
            {
                **common_environment(replicas, options.ipus_per_replica, count, environ),
                "LOCAL_WORLD_SIZE": str(count // len(where.hosts)),
                **own,
            }.items()
        ),
        server_host=options.vipu_server_host or named.get(HOST_VARIABLE, ""),
        server_port=str(options.vipu_server_port or named.get(PORT_VARIABLE, "")),
        server_timeout=timeout,
        server_certs=options.vipu_tls_certs or "",
        attempts=options.vipu_partition_attempts,
        mpi_arguments=_split("--mpi-global-args", options.mpi_global_args),
        run_as_root=options.allow_run_as_root,
        only_output_from=only,
        print_topology=options.print_topology,
        verbosity=2 if options.debug else options.verbosity,
        cache=cache,
        offline=options.offline_mode,
        log_folder=options.log_dir or "",
        timestamps=options.timestamps,
        timeout=options.timeout,
        grace=_grace(options, environ),
        max_restarts=options.max_restarts,
        pid_namespace=options.pid_namespace,
        ipc=whose_ipc(options.ipc, environ),
        notes=tuple(notes),
        launcher=_launcher(options.launcher, environ, where),
        by_slurm=where.by_slurm,
        by_workers=where.by_workers,
        subnet=options.host_subnet or "",
        placement=strategy if gpus or len(where.hosts) > 1 else "disabled",
        gpus=gpus,
        waits=options.vipu_wait and wanted.create,
        spares=where.spares,
        move=move,
        preparation=preparation(options, environ, where.hosts != (host,), where.by_slurm),
        trace=options.trace or "",
        given=_in_pods(environ, where, host)
        and not options.offline_mode
        and wanted.name == _granted(environ),
    )


def _launcher(option: str, environ: Mapping[str, str], where: HostChoice) -> str:
    """Return mpirun, unless another launcher is named; in pods of a Kubernetes job, mpirun if it is
    there.
    """
    if option not in ("auto", "mpirun"):
        return option
    in_pod = where.by_workers or WORKER_VARIABLE in environ
    if option == "auto" and in_pod and find_program("mpirun", environ) is None:
        return "local"
    if where.by_workers and (shared := shared_host(environ, where.hosts)):
        raise InvalidRequest(
            f"{shared}, and Open MPI would take them for one host",
            would_work="--launcher=local, or keep them apart, by podAntiAffinity",
        )
    return "mpirun"


def _in_pods(environ: Mapping[str, str], where: HostChoice, host: str) -> bool:
    """Return whether everything runs in pods of a Kubernetes job: its workers, or this one."""
    return where.by_workers or (WORKER_VARIABLE in environ and where.hosts == (host,))


def _move(options: Options, notes: list[str]) -> tuple[int, float] | None:
    """Return how the launch moves, if it can."""
    if options.movable:
        return options.move_signal or MOVE_SIGNAL, options.move_seconds or MOVE_SECONDS
    if options.move_signal or options.move_seconds:
        notes.append("--move-signal and --move-seconds have no effect without --movable")
    return None


def _gpus(options: Options, environ: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the GPUs of each instance and which it sees; empty when other devices were named."""
    named = (SOCKET_VARIABLE, HOST_VARIABLE, PARTITION_VARIABLE, LEASE_VARIABLE)
    vipu_options = (options.vipu_partition, options.vipu_allocation, options.vipu_server_host)
    devices = options.offline_mode or any(vipu_options) or any(environ.get(name) for name in named)
    how = visibility(options, environ, devices=devices)
    each = options.num_replicas // options.num_instances * options.ipus_per_replica
    return (each, how) if how else ()


def _instances(options: Options, hosts: Sequence[str]) -> tuple[Instance, ...]:
    count = options.num_instances
    local = options.num_replicas // count
    share = count // len(hosts)
    common = _split("--mpi-local-args", options.mpi_local_args)
    own: dict[int, tuple[str, ...]] = {}
    for index, text in options.instance_mpi_local_args:
        if index >= count:
            raise InvalidRequest(
                f"--instance-mpi-local-args={index}:…: there is no such instance",
                would_work=f"There are 0 to {count - 1}",
            )
        own[index] = own.get(index, ()) + _split("--instance-mpi-local-args", (text,))
    return tuple(
        Instance(
            rank=i,
            host=hosts[i // share],
            local_index=i % share,
            replicas=local,
            environment=tuple(instance_environment(i, i % share, local).items()),
            mpi_arguments=common + own.get(i, ()),
        )
        for i in range(count)
    )


def _offline_target(options: Options) -> str:
    if not options.offline_mode:
        raise InvalidRequest(
            "--offline-target is for launches without devices",
            would_work="Write --offline-mode=yes too, or leave it out",
        )
    devices = options.num_replicas * options.ipus_per_replica
    target = options.offline_target or ""
    return offline_options(target, devices, options.num_instances, options.num_ilds)


def _grace(options: Options, environ: Mapping[str, str]) -> float:
    if options.grace is not None:
        return options.grace
    return GRACE_IN_SLURM if "SLURM_JOB_ID" in environ else GRACE


def places_instances(options: Options) -> bool:
    """Return whether the cores of hosts matter to this launch."""
    strategy = _strategy(options, [])
    return strategy != "disabled" and (options.num_instances > 1 or strategy != "spreadnuma")


def _strategy(options: Options, notes: list[str]) -> str:
    """Return how processes are placed: by poprun's option, by mpirun's, or spreadnuma."""
    chosen = options.process_placement
    if options.numa_aware is not None:
        old = "spreadnuma" if options.numa_aware else "disabled"
        notes.append(f"--numa-aware is deprecated; write --process-placement {chosen or old}")
        chosen = chosen or old
    words = _split("--mpi-global-args", options.mpi_global_args)
    own = [
        word for word in words if word.startswith("-") and word.lstrip("-").split("=")[0] in FLAGS
    ]
    if not own or chosen == "disabled":
        return chosen or "spreadnuma"
    if options.process_placement:
        raise InvalidRequest(
            f"--process-placement={chosen} and {own[0]} in --mpi-global-args both place processes",
            would_work="Write --process-placement=disabled, and mpirun's own options hold",
        )
    notes.append(f"{own[0]} in --mpi-global-args places the processes; poprun does not")
    return "disabled"


def _placed(
    instances: tuple[Instance, ...], strategy: str, cores: Cores | None
) -> tuple[Instance, ...]:
    if cores is None or strategy == "disabled":
        return instances
    placed = []
    for instance, place in zip(
        instances, places(strategy, cores, len(instances)) or [None] * len(instances), strict=True
    ):
        own = instance.environment + (place.variables if place else ())
        placed.append(instance._replace(place=place, environment=own))
    return tuple(placed)


def _granted(environ: Mapping[str, str]) -> str | None:
    """Return the partition that a job was given with its start."""
    return environ.get(PARTITION_VARIABLE) or None


def _wanted(options: Options, environ: Mapping[str, str]) -> WantedPartition:
    if options.sync_type:
        check_sync_type(options.sync_type)
    name = options.vipu_partition or environ.get(PARTITION_VARIABLE, "")
    parent = environ.get(LEASE_VARIABLE, "")
    # The scheduler's grant is the limit: more devices would be taken without its knowledge.
    in_job = any(name in environ for name in ("SLURM_JOB_ID", WORKERS_VARIABLE, WORKER_VARIABLE))
    granted = bool(parent) or (in_job and name == _granted(environ))
    return WantedPartition(
        name=name,
        devices=options.num_replicas * options.ipus_per_replica,
        allocation=options.vipu_allocation
        or options.vipu_cluster
        or environ.get(ALLOCATION_VARIABLE, ""),
        instances=options.num_instances,
        ilds=options.num_ilds or 0,
        sync_type=options.sync_type or "DEFAULT",
        movable=options.movable,
        parent=parent,
        create=not granted,
        update=options.update_partition and not granted,
        keep=not options.remove_partition,
        reset=options.reset_partition,
        ttl=_fence_after(options, environ),
    )


def _fence_after(options: Options, environ: Mapping[str, str]) -> float:
    """Return the seconds without a renewal after which the devices are fenced."""
    seconds_text = environ.get(FENCE_VARIABLE, "")
    if options.fence_after is not None or not seconds_text:
        return LEASE_TTL if options.fence_after is None else options.fence_after
    try:
        seconds = float(seconds_text)
    except ValueError:
        seconds = -1.0
    if not SHORTEST_FENCE <= seconds <= LONGEST_FENCE:
        raise InvalidRequest(
            f"{FENCE_VARIABLE}={seconds_text!r} is not a time after which devices can be fenced",
            would_work=f"Use seconds from {SHORTEST_FENCE:g} to {LONGEST_FENCE:g}",
        )
    return seconds


def _split(option: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    words: list[str] = []
    for text in texts:
        try:
            words += shlex.split(_protected(text))
        except ValueError as error:
            raise InvalidRequest(f"{option}={text!r}: {str(error).lower()}") from None
    return tuple(words)


def _protected(text: str) -> str:
    """Put quotes around JSON that follows an equals sign without them, as in `-x NAME={"a": "b"}`.

    The PopRun guide has such lines, but the shell removes their quotes.
    """
    start = text.find("={")
    if start < 0:
        return text
    import json

    decoder = json.JSONDecoder()
    done = ""
    while start >= 0:
        start += 1
        try:
            shlex.split(
                done + text[:start]
            )  # ValueError: quotes are open, so they are there already
            _, end = decoder.raw_decode(text, start)
        except ValueError:
            end = start + 1
            done += text[:end]
        else:
            done += text[:start] + shlex.quote(text[start:end])
        text = text[end:]
        start = text.find("={")
    return done + text


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + (" or " if numbers[1:] else "") + str(numbers[-1])
