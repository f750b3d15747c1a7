"""The options of poprun as one value. Names and defaults: PopRun guide, chapters 2 and 4."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """The options of the command line; None for an option that was not given, if that matters."""

    program: tuple[str, ...] = ()
    num_replicas: int = 1
    num_instances: int = 1
    ipus_per_replica: int = 1
    num_ilds: int | None = None
    vipu_server_host: str | None = None
    vipu_server_port: int | None = None
    vipu_server_timeout: float | None = None
    vipu_tls_certs: str | None = None
    vipu_partition: str | None = None
    vipu_partition_attempts: int = 1
    vipu_allocation: str | None = None
    vipu_cluster: str | None = None
    sync_type: str | None = None
    vipu_wait: bool = False
    update_partition: bool = False
    reset_partition: bool | None = None
    remove_partition: bool = True
    mpi_global_args: tuple[str, ...] = ()
    mpi_local_args: tuple[str, ...] = ()
    instance_mpi_local_args: tuple[tuple[int, str], ...] = ()
    allow_run_as_root: bool | None = None
    numa_aware: bool | None = None
    process_placement: str | None = None
    gpu_visibility: str | None = None
    print_topology: bool = False
    only_output_from_instance: int | None = None
    executable_cache_path: str | None = None
    autoreport_dir: str | None = None
    offline_mode: bool = False
    offline_target: str | None = None
    import_config: str | None = None
    export_config: str | None = None
    overwrite_config: bool = False
    log_dir: str | None = None
    trace: str | None = None
    timestamps: bool = False
    timeout: float | None = None
    grace: float | None = None
    max_restarts: int = 0
    fence_after: float | None = None
    movable: bool = False
    move_signal: int | None = None
    move_seconds: float | None = None
    pid_namespace: bool = True
    ipc: str | None = None
    host: str | None = None
    hostfile: str | None = None
    host_subnet: str | None = None
    launcher: str = "auto"
    distribute_ssh_key: bool = False
    distribute_ssh_key_path: str | None = None
    distribute_ssh_key_type: str | None = None
    synchronise_python_venv: bool = False
    synchronise_poplar_sdk: bool = False
    synchronise_code: bool = False
    dry_run: str = ""
    verbosity: int = 0
    debug: bool = False
    help: bool = False
    version: bool = False
    version_format: str = ""
