"""The plan of a command line: decided from options and environment alone.

The partition that it requests follows the PopRun guide, section 2.8.3: as many devices as the
replicas need, one GCD per instance, and as many partition replicas as instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podwright.errors import InvalidRequest
from podwright.ground.endpoints import SOCKET_VARIABLE
from podwright.ground.plural import counted
from podwright.hosts import (
    WORKER_VARIABLE,
    WORKERS_VARIABLE,
    Cores,
    find_program,
    fold,
    shared_host,
)
from podwright.launcher.instances._divide_gpus import visibility
from podwright.launcher.instances._profile_folders import AUTOREPORT_VARIABLE, check_profiling
from podwright.launcher.options._core_placement import MPIRUN_PLACEMENT_FLAGS, places
from podwright.launcher.options._instance_environment import (
    SERVER_TIMEOUT_SECONDS,
    TARGET_VARIABLE,
    TIMEOUT_VARIABLE,
    chosen_ipc,
    common_environment,
    instance_environment,
)
from podwright.launcher.options._move_notice import DEFAULT_MOVE_SECONDS, DEFAULT_MOVE_SIGNAL
from podwright.launcher.options._offline import offline_options
from podwright.launcher.options._option_table import MAX_FENCE_SECONDS, MIN_FENCE_SECONDS, Options
from podwright.launcher.options._split_mpi_arguments import split_mpi_arguments
from podwright.launcher.plan._executable_cache import CACHE_VARIABLE, TEMPORARY_CACHE, cache_path
from podwright.launcher.plan._host_selection import HostChoice, choose_hosts
from podwright.launcher.plan._plan import DEFAULT_GRACE_S, Instance, Plan
from podwright.launcher.plan._prepare_hosts import preparation
from podwright.launcher.plan._wanted_partition import (
    WantedPartition,
    check_server_host,
    check_sync_type,
    size_notes,
)

HOST_VARIABLE = "IPUOF_VIPU_API_HOST"
PORT_VARIABLE = "IPUOF_VIPU_API_PORT"
PARTITION_VARIABLE = "IPUOF_VIPU_API_PARTITION_ID"
#: The lease of the surrounding job, if it has one: this launch takes its lease within that one.
LEASE_VARIABLE = "PODWRIGHT_LEASE"
#: The job's own allocation, under host mapping.
ALLOCATION_VARIABLE = "PODWRIGHT_ALLOCATION"
#: Seconds that a lease lasts without renewal; the keeper renews it every few (_lease_keeper).
LAUNCH_LEASE_TTL_S = 300.0
#: Overrides these seconds: at least a few renewals, at most what the server grants.
FENCE_VARIABLE = "PODWRIGHT_FENCE_AFTER"
#: Seconds between asking instances to end and killing them in Slurm, which kills after 30 (its
#: KillWait).
SLURM_GRACE_S = 20.0


def _even_counts(replicas: int, instances: int) -> str:
    """Return options with numbers that divide evenly.

    torchrun's processes are instances of one replica each.
    """
    rounded_replicas = -(-replicas // instances) * instances
    return (
        f"Write --num-replicas {rounded_replicas} --num-instances {instances}, or "
        f"--num-replicas {replicas} --num-instances N, where N is "
        f"{_numbers_text(_divisors(replicas))}. "
        f"For what torchrun starts with --nproc-per-node {instances}: "
        f"--num-replicas {instances} --num-instances {instances}"
    )


def make_plan(
    options: Options,
    environ: Mapping[str, str],
    this_host: str = "localhost",
    cores: Cores | None = None,
) -> Plan:
    """Return the plan of `options`, checked. Raises InvalidRequest for what can never work.

    cores: those of the host, as far as they are known (see `places_instances`).
    """
    instance_count, replicas = options.num_instances, options.num_replicas
    notes = []
    if not options.program:
        raise InvalidRequest(
            "there is no program to run", would_work="Name one after the options: poprun … train.py"
        )
    if replicas % instance_count:
        raise InvalidRequest(
            f"{replicas} replicas do not divide evenly among {instance_count} instances",
            would_work=_even_counts(replicas, instance_count),
        )
    if replicas == 1:
        notes.append("1 replica in 1 instance: poprun is not needed for that, and costs time")
    placement_strategy = _strategy(options, notes)
    if options.vipu_cluster:
        notes.append("--vipu-cluster is deprecated; write --vipu-allocation")
    only_instance = options.only_output_from_instance
    if only_instance is not None and only_instance >= instance_count:
        raise InvalidRequest(
            f"--only-output-from-instance={only_instance}: there is no such instance",
            would_work=f"There are 0 to {instance_count - 1}",
        )
    host_choice = choose_hosts(options, environ, this_host)
    if host_choice.spares and not host_choice.by_slurm:
        notes.append(
            f"{counted(instance_count, 'instance', ('runs', 'run'))} on {fold(host_choice.hosts)}; "
            f"{fold(host_choice.spares)}: spare"
        )
    wanted_partition = _wanted(options, environ)
    if options.vipu_wait and not wanted_partition.create:
        notes.append("--vipu-wait has no effect: what the job was given is all there is")
    move_terms = _move_terms(options, notes)
    gpus = _gpus_by_instance(options, environ)
    if gpus or len(host_choice.hosts) > 1 or host_choice.hosts[0] not in ("localhost", this_host):
        cores = None
    server_timeout = options.vipu_server_timeout or SERVER_TIMEOUT_SECONDS
    instances = _make_instances(options, host_choice.hosts)
    mpi_arguments = [instance.mpi_arguments for instance in instances]
    cache_folder = cache_path(
        options.executable_cache_path, instance_count, environ, mpi_arguments, notes
    )
    extra_variables = {TIMEOUT_VARIABLE: f"{server_timeout:g}"}
    if cache_folder not in ("", TEMPORARY_CACHE):
        extra_variables[CACHE_VARIABLE] = cache_folder
    if options.autoreport_dir:
        check_profiling(environ, mpi_arguments)
        extra_variables[AUTOREPORT_VARIABLE] = options.autoreport_dir
    if options.offline_target:
        extra_variables[TARGET_VARIABLE] = _offline_target(options)
    if options.dry_run and not (gpus or options.offline_mode or wanted_partition.name):
        notes += size_notes(wanted_partition.devices, instance_count, options.num_ilds)
    if options.vipu_server_host:
        check_server_host(options.vipu_server_host, options.vipu_server_port)
    # A socket identifies the caller, which an address does not. If both are named, the socket is
    # used.
    address_environment = {} if environ.get(SOCKET_VARIABLE) else environ
    return Plan(
        program=options.program,
        replicas=replicas,
        ipus_per_replica=options.ipus_per_replica,
        instances=_placed_instances(instances, placement_strategy, cores),
        wanted=wanted_partition,
        environment=tuple(
            {
                **common_environment(replicas, options.ipus_per_replica, instance_count, environ),
                "LOCAL_WORLD_SIZE": str(instance_count // len(host_choice.hosts)),
                **extra_variables,
            }.items()
        ),
        server_host=options.vipu_server_host or address_environment.get(HOST_VARIABLE, ""),
        server_port=str(options.vipu_server_port or address_environment.get(PORT_VARIABLE, "")),
        server_timeout=server_timeout,
        server_certs=options.vipu_tls_certs or "",
        attempts=options.vipu_partition_attempts,
        mpi_arguments=split_mpi_arguments("--mpi-global-args", options.mpi_global_args),
        run_as_root=options.allow_run_as_root,
        only_output_from=only_instance,
        print_topology=options.print_topology,
        verbosity=2 if options.debug else options.verbosity,
        cache=cache_folder,
        offline=options.offline_mode,
        log_folder=options.log_dir or "",
        timestamps=options.timestamps,
        timeout=options.timeout,
        grace=_grace_seconds(options, environ),
        max_restarts=options.max_restarts,
        pid_namespace=options.pid_namespace,
        ipc=chosen_ipc(options.ipc, environ),
        notes=tuple(notes),
        launcher=_chosen_launcher(options.launcher, environ, host_choice),
        by_slurm=host_choice.by_slurm,
        by_workers=host_choice.by_workers,
        subnet=options.host_subnet or "",
        placement=placement_strategy if gpus or len(host_choice.hosts) > 1 else "disabled",
        gpus=gpus,
        waits=options.vipu_wait and wanted_partition.create,
        spares=host_choice.spares,
        move=move_terms,
        preparation=preparation(
            options, environ, host_choice.hosts != (this_host,), host_choice.by_slurm
        ),
        trace=options.trace or "",
        given=_in_pods(environ, host_choice, this_host)
        and not options.offline_mode
        and wanted_partition.name == _granted_partition(environ),
    )


def _chosen_launcher(
    launcher_option: str, environ: Mapping[str, str], host_choice: HostChoice
) -> str:
    """Return mpirun, unless another launcher is named; in pods of a Kubernetes job, mpirun if it is
    there.
    """
    if launcher_option not in ("auto", "mpirun"):
        return launcher_option
    in_pod = host_choice.by_workers or WORKER_VARIABLE in environ
    if launcher_option == "auto" and in_pod and find_program("mpirun", environ) is None:
        return "local"
    if host_choice.by_workers and (text := shared_host(environ, host_choice.hosts)):
        raise InvalidRequest(
            f"{text}, and Open MPI would take them for one host",
            would_work="--launcher=local, or keep them apart, by podAntiAffinity",
        )
    return "mpirun"


def _in_pods(environ: Mapping[str, str], host_choice: HostChoice, this_host: str) -> bool:
    """Return whether everything runs in pods of a Kubernetes job: its workers, or this one."""
    return host_choice.by_workers or (
        WORKER_VARIABLE in environ and host_choice.hosts == (this_host,)
    )


def _move_terms(options: Options, notes: list[str]) -> tuple[int, float] | None:
    """Return how the launch moves, if it can."""
    if options.movable:
        return (
            options.move_signal or DEFAULT_MOVE_SIGNAL,
            options.move_seconds or DEFAULT_MOVE_SECONDS,
        )
    if options.move_signal or options.move_seconds:
        notes.append("--move-signal and --move-seconds have no effect without --movable")
    return None


def _gpus_by_instance(options: Options, environ: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the GPUs of each instance and which it sees; empty when other devices were named."""
    variables = (SOCKET_VARIABLE, HOST_VARIABLE, PARTITION_VARIABLE, LEASE_VARIABLE)
    vipu_options = (options.vipu_partition, options.vipu_allocation, options.vipu_server_host)
    devices = (
        options.offline_mode or any(vipu_options) or any(environ.get(name) for name in variables)
    )
    gpu_visibility = visibility(options, environ, devices=devices)
    gpus_per_instance = options.num_replicas // options.num_instances * options.ipus_per_replica
    return (gpus_per_instance, gpu_visibility) if gpu_visibility else ()


def _make_instances(options: Options, hosts: Sequence[str]) -> tuple[Instance, ...]:
    instance_count = options.num_instances
    replicas_per_instance = options.num_replicas // instance_count
    instances_per_host = instance_count // len(hosts)
    common_arguments = split_mpi_arguments("--mpi-local-args", options.mpi_local_args)
    arguments_by_rank: dict[int, tuple[str, ...]] = {}
    for instance_index, arguments_text in options.instance_mpi_local_args:
        if instance_index >= instance_count:
            raise InvalidRequest(
                f"--instance-mpi-local-args={instance_index}:…: there is no such instance",
                would_work=f"There are 0 to {instance_count - 1}",
            )
        arguments_by_rank[instance_index] = arguments_by_rank.get(
            instance_index, ()
        ) + split_mpi_arguments("--instance-mpi-local-args", (arguments_text,))
    return tuple(
        Instance(
            rank=rank,
            host=hosts[rank // instances_per_host],
            local_index=rank % instances_per_host,
            replicas=replicas_per_instance,
            environment=tuple(
                instance_environment(rank, rank % instances_per_host, replicas_per_instance).items()
            ),
            mpi_arguments=common_arguments + arguments_by_rank.get(rank, ()),
        )
        for rank in range(instance_count)
    )


def _offline_target(options: Options) -> str:
    if not options.offline_mode:
        raise InvalidRequest(
            "--offline-target is for launches without devices",
            would_work="Write --offline-mode=yes too, or leave it out",
        )
    count = options.num_replicas * options.ipus_per_replica
    target = options.offline_target or ""
    return offline_options(target, count, options.num_instances, options.num_ilds)


def _grace_seconds(options: Options, environ: Mapping[str, str]) -> float:
    if options.grace is not None:
        return options.grace
    return SLURM_GRACE_S if "SLURM_JOB_ID" in environ else DEFAULT_GRACE_S


def places_instances(options: Options) -> bool:
    """Return whether the cores of hosts matter to this launch."""
    strategy = _strategy(options, [])
    return strategy != "disabled" and (options.num_instances > 1 or strategy != "spreadnuma")


def _strategy(options: Options, notes: list[str]) -> str:
    """Return how processes are placed: by poprun's option, by mpirun's, or spreadnuma."""
    chosen_strategy = options.process_placement
    if options.numa_aware is not None:
        deprecated_choice = "spreadnuma" if options.numa_aware else "disabled"
        notes.append(
            "--numa-aware is deprecated; write --process-placement "
            f"{chosen_strategy or deprecated_choice}"
        )
        chosen_strategy = chosen_strategy or deprecated_choice
    mpi_arguments = split_mpi_arguments("--mpi-global-args", options.mpi_global_args)
    placement_flags = [
        argument
        for argument in mpi_arguments
        if argument.startswith("-") and argument.lstrip("-").split("=")[0] in MPIRUN_PLACEMENT_FLAGS
    ]
    if not placement_flags or chosen_strategy == "disabled":
        return chosen_strategy or "spreadnuma"
    if options.process_placement:
        raise InvalidRequest(
            f"--process-placement={chosen_strategy} and {placement_flags[0]} in --mpi-global-args "
            "both place processes",
            would_work="Write --process-placement=disabled, and mpirun's own options hold",
        )
    notes.append(f"{placement_flags[0]} in --mpi-global-args places the processes; poprun does not")
    return "disabled"


def _placed_instances(
    instances: tuple[Instance, ...], strategy: str, cores: Cores | None
) -> tuple[Instance, ...]:
    if cores is None or strategy == "disabled":
        return instances
    placed_instances = []
    for instance, instance_place in zip(
        instances, places(strategy, cores, len(instances)) or [None] * len(instances), strict=True
    ):
        environment = instance.environment + (instance_place.variables if instance_place else ())
        placed_instances.append(instance._replace(place=instance_place, environment=environment))
    return tuple(placed_instances)


def _granted_partition(environ: Mapping[str, str]) -> str | None:
    """Return the partition that a job was given with its start."""
    return environ.get(PARTITION_VARIABLE) or None


def _wanted(options: Options, environ: Mapping[str, str]) -> WantedPartition:
    if options.sync_type:
        check_sync_type(options.sync_type)
    name = options.vipu_partition or environ.get(PARTITION_VARIABLE, "")
    parent_lease = environ.get(LEASE_VARIABLE, "")
    # The scheduler's grant is the limit: more devices would be taken without its knowledge.
    in_job = any(name in environ for name in ("SLURM_JOB_ID", WORKERS_VARIABLE, WORKER_VARIABLE))
    is_granted = bool(parent_lease) or (in_job and name == _granted_partition(environ))
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
        parent=parent_lease,
        create=not is_granted,
        update=options.update_partition and not is_granted,
        keep=not options.remove_partition,
        reset=options.reset_partition,
        ttl=_fence_after(options, environ),
    )


def _fence_after(options: Options, environ: Mapping[str, str]) -> float:
    """Return the seconds without a renewal after which the devices are fenced."""
    text = environ.get(FENCE_VARIABLE, "")
    if options.fence_after is not None or not text:
        return LAUNCH_LEASE_TTL_S if options.fence_after is None else options.fence_after
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not MIN_FENCE_SECONDS <= seconds <= MAX_FENCE_SECONDS:
        raise InvalidRequest(
            f"{FENCE_VARIABLE}={text!r} is not a time after which devices can be fenced",
            would_work=f"Use seconds from {MIN_FENCE_SECONDS:g} to {MAX_FENCE_SECONDS:g}",
        )
    return seconds


def _divisors(number: int) -> list[int]:
    small_divisors = [
        divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0
    ]
    return sorted({*small_divisors, *(number // divisor for divisor in small_divisors)})


def _numbers_text(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + (" or " if numbers[1:] else "") + str(numbers[-1])
