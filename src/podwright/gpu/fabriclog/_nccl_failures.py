"""Why a job with NCCL failed: what NCCL itself and the framework wrote, and what it means.

A warning alone is no failure, since NCCL also warns of what it then does without. A warning counts
where NCCL handed an error up (`file.cc:71 -> 2`) and the process did not finish its start
afterwards, where the thread wrote nothing more, or where the words say that the job ends. The first
failure counts. A lost connection follows from the end of another rank, so it counts last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class FailureCause:
    """What a line means. id: for JSON. meaning, remedy: without full stops.

    follows: whether it mostly follows from a failure elsewhere. is_final: whether the words alone
    say that the job has failed.
    """

    id: str
    pattern: re.Pattern[str]
    meaning: str
    remedy: str
    follows: bool = False
    is_final: bool = False


@dataclass(frozen=True)
class NcclFailure:
    """The first failure of a log. line: as it stands there. host: empty if the line has none.

    general: whether the line only says that there was an error.
    """

    line: str
    host: str
    cause: FailureCause | None
    general: bool = False


def _cause(
    cause_id: str,
    pattern: str,
    meaning: str,
    remedy: str,
    *,
    follows: bool = False,
    is_final: bool = False,
) -> FailureCause:
    return FailureCause(
        cause_id, re.compile(pattern, re.IGNORECASE), meaning, remedy, follows, is_final
    )


_MATCH_RANKS = (
    "start each rank once: RANK, WORLD_SIZE and the rendezvous must be of one job; let no "
    "process of an earlier run live"
)
#: In the order in which a line is compared.
_CAUSES = (
    _cause(
        "duplicate-gpu",
        r"Duplicate GPU detected",
        "two ranks were given the same GPU",
        "start one rank for each GPU, and choose it by LOCAL_RANK or SLURM_LOCALID "
        "(torch.cuda.set_device)",
        is_final=True,
    ),
    _cause(
        "no-socket-interface",
        r"no socket interface found|no usable (?:socket|listening) interface",
        "no network interface of this host fits NCCL_SOCKET_IFNAME, or none is up",
        "name an interface that `ip addr` shows on every node: export NCCL_SOCKET_IFNAME=…, or "
        "unset it",
        is_final=True,
    ),
    _cause(
        "dev-shm",
        r"/dev/shm|posix_fallocate|shared memory segment|shm_open|shmOpen",
        "shared memory could not be had: /dev/shm is too small, full, or shut",
        "see `df -h /dev/shm` inside the job; for a container --shm-size=8g, or --ipc=host; in "
        "Kubernetes an emptyDir with medium Memory at /dev/shm",
    ),
    _cause(
        "driver-too-old",
        r"driver version is insufficient|Cuda failure (?:35|'?CUDA driver version)",
        "the driver of this host is older than the CUDA that the program was built for",
        "use a newer driver, or a build for an older CUDA (`nvidia-smi` shows what the driver can)",
        is_final=True,
    ),
    _cause(
        "peer-access",
        r"peer access is not supported|failed to open CUDA IPC handle|(?:cuda|hip)Ipc\w*MemHandle",
        "two GPUs cannot reach each other's memory, although NCCL took them to",
        "export NCCL_P2P_DISABLE=1 to see that it is this; then mend it: each process must see "
        "both GPUs, and PCIe ACS be off (`nvidia-smi topo -p2p r`)",
    ),
    _cause(
        "gpu-memory",
        r"(?:Cuda|HIP) failure[^\n]*out of memory|Failed to (?:CUDA|HIP) (?:malloc|calloc)",
        "the memory of a GPU was full",
        "leave NCCL some GiB, or end what else runs on the GPU (`nvidia-smi`)",
        is_final=True,
    ),
    _cause(
        "no-such-gpu",
        r"invalid device ordinal|no (?:CUDA|HIP|ROCm)-capable device|no GPUs found",
        "a rank asked for a GPU that it does not see",
        "choose the GPU by LOCAL_RANK, below the number of GPUs that the task sees "
        "(CUDA_VISIBLE_DEVICES)",
        is_final=True,
    ),
    _cause(
        "memory-lock",
        r"ibv_(?:reg_mr|create_cq|create_qp|reg_dmabuf_mr|alloc_pd)\S* failed[^\n]*"
        r"(?:Cannot allocate memory|errno 12)",
        "the InfiniBand driver may lock too little memory",
        "`ulimit -l` must be unlimited inside the job (LimitMEMLOCK of slurmd, or the "
        "container's --ulimit memlock=-1)",
    ),
    _cause(
        "gid",
        r"ibv_modify_qp failed|Got completion from peer \S+ with (?:error|status=)\s?12\b"
        r"|IBV_WC_RETRY_EXC_ERR|with status=12|gid.{0,20}(?:invalid|not found)",
        "an adapter got no answer over RDMA; over RoCE mostly for a wrong GID, else because the "
        "peer had ended",
        "over RoCE export NCCL_IB_GID_INDEX=the index of RoCE v2 in `show_gids`, equal on all "
        "nodes; see that `ib_write_bw` between them works, and that the port is up (`ibstat`)",
    ),
    _cause(
        "port-down",
        r"async (?:fatal )?event|port error|link.{0,10}(?:went )?down",
        "a port of an adapter failed while the job ran",
        "see `ibstat` and the kernel's log of that host; take the adapter out with "
        "NCCL_IB_HCA=^name until it is mended",
    ),
    _cause(
        "twice-the-rank",
        r"has already checked in",
        "two processes took part under one rank",
        _MATCH_RANKS,
        is_final=True,
    ),
    _cause(
        "sizes-of-world",
        r"mismatch in rank count|nranks? (?:mismatch|differs)",
        "the processes do not agree how many ranks there are",
        _MATCH_RANKS,
        is_final=True,
    ),
    _cause(
        "mismatched-calls",
        r"Message truncated|Mismatched (?:collective|call)|collectives? .{0,40}mismatch",
        "ranks called different operations, or with different sizes",
        "let every rank call the same operations in the same order, with the same sizes "
        "(TORCH_DISTRIBUTED_DEBUG=DETAIL names them)",
        is_final=True,
    ),
    _cause(
        "versions",
        r"mismatch(?:ed)? (?:in )?(?:NCCL )?versions?|incompatible NCCL",
        "the hosts have different versions of NCCL",
        "use one image, or one environment, on all nodes",
        is_final=True,
    ),
    _cause(
        "nvls",
        r"NVLS|NVLink SHARP|multicast",
        "NVLink SHARP (NVLS) could not be set up",
        "see that nvidia-fabricmanager runs and has this driver's version; NCCL_NVLS_ENABLE=0 "
        "does without",
    ),
    _cause(
        "files",
        r"Too many open files",
        "the process may open too few files",
        "raise `ulimit -n` in the job",
        is_final=True,
    ),
    _cause(
        "efa",
        r"NET/OFI (?:Request completed with error|Couldn't open|Creating new endpoint|Unable to)",
        "the plugin for EFA could not use an adapter, or an adapter not reach its peer",
        "the security group must let all traffic within itself pass; see `fi_info -p efa` inside "
        "the job, and that /dev/infiniband is there",
    ),
    _cause(
        "bind",
        r"bind failed[^\n]*Cannot assign requested address|Connect to fe80",
        "NCCL took a link-local address (fe80…) or one that is not this host's",
        "export NCCL_SOCKET_FAMILY=AF_INET, and NCCL_SOCKET_IFNAME=an interface with an "
        "address that all nodes reach",
    ),
    _cause(
        "no-route",
        r"No route to host|Network is unreachable|connect\S* [^\n]*timed out"
        r"|Connection timed out",
        "a host did not answer at the address that NCCL took for it",
        "export NCCL_SOCKET_IFNAME=the interface by which the nodes reach each other; no "
        "firewall may stand between them",
    ),
    _cause(
        "connection-refused",
        r"Connection refused",
        "nobody listened at another rank's address: that rank had ended, or NCCL took an "
        "interface that the others do not reach",
        "look for the first failure on that host; if there is none, export NCCL_SOCKET_IFNAME="
        "the interface by which the nodes reach each other",
    ),
    _cause(
        "gpu-fault",
        r"(?:Cuda|HIP) failure[^\n]*(?:illegal memory access|unspecified launch failure|ECC"
        r"|device-side assert|misaligned address|hardware|NVLink)",
        "the GPU reported an error of a kernel or of itself, which NCCL only passed on",
        "run with CUDA_LAUNCH_BLOCKING=1 to find the kernel; see the kernel's log for Xid",
        is_final=True,
    ),
    _cause(
        "initialization",
        r"(?:Cuda|HIP) failure[^\n]*initialization error",
        "CUDA could not be initialised: mostly the process was forked after CUDA was used",
        "start processes by spawn, and use no GPU before",
    ),
    _cause(
        "topology",
        r"Failed to find (?:reverse )?path|Could not find (?:a )?path|topology",
        "NCCL could not make out how the GPUs are connected, mostly in a virtual machine",
        "export NCCL_TOPO_FILE=the provider's topology file, or use a newer NCCL or RCCL",
    ),
    _cause(
        "program-arguments",
        r"invalid (?:root|usage|argument)[^\n]*\(|should be in the",
        "the program called NCCL with wrong arguments",
        "see the call that the line names",
    ),
    _cause(
        "peer-gone",
        r"Connection closed by remote|Connection reset by peer|remote (?:process|peer) exited"
        r"|Software caused connection abort|Broken pipe|Socket (?:recv|send) failed"
        r"|Proxy Call to rank|with error 5\b"
        r"|with status=5\b|remote error|Error encountered progressing operation",
        "another rank had gone",
        "look for what ended that rank: its own output, its node's kernel log (oom-kill), Slurm's "
        "`sacct -j JOB`",
        follows=True,
    ),
    _cause(
        "watchdog",
        r"Watchdog caught collective operation timeout|operations have failed or timed out"
        r"|Timeout at NCCL work|collective operation timeout",
        "a collective did not end in time: a rank did not take part, or the network was stuck",
        "see which rank is missing (its last SeqNum is lower, or it wrote an error before); "
        "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 record it",
        follows=True,
        is_final=True,
    ),
)
_LIBRARY_PROBLEM = re.compile(r"Failed to open libibverbs")
#: What PyTorch and others write of an error of NCCL.
_FRAMEWORK = re.compile(
    r"NCCL error|nccl(?:Unhandled\w+|System|Internal|Invalid\w+|Remote)Error|DistBackendError"
    r"|NCCL failure|Watchdog caught|Timeout at NCCL work|ProcessGroupNCCL[^\n]*no GPUs found"
    r"|NCCL operations have failed or timed out|NCCL communicator was aborted",
)
#: It counts in a log of NCCL alone.
_BUS_ERROR = re.compile(r"Signal: Bus error|Bus error \(core dumped\)")
#: Each line that `framework_line` looks at has one of these: a log may have millions of others.
_FRAMEWORK_WORDS = ("NCCL", "nccl", "DistBackendError", "Watchdog", "Last error", "Bus error")
_LAST_ERROR = re.compile(r"Last error:\s*(.*)$")
_HANDED_UP = re.compile(r"^\S+\.(?:cc|cu|cpp|h):\d+ -> (\d+)")
#: What NCCL writes while it starts, so that an error before was none for it.
_WENT_ON = re.compile(
    r"Using \S*\s?network|NET/|Channel \d|Connected all|Setting affinity|.*Init START"
)
_IN_PROGRESS = "7"  # ncclInProgress


_BUS_ERROR_CAUSE = _cause(
    "bus-error",
    "Bus error",
    "a process touched memory that was not there, mostly because /dev/shm was full",
    "see `df -h /dev/shm` inside the job; for a container --shm-size=8g, or --ipc=host",
)


def cause_of(line: str) -> FailureCause | None:
    """Return what a line of NCCL or of a framework means; None if that is not known."""
    return next((cause for cause in _CAUSES if cause.pattern.search(line)), None)


def _follows(failure: NcclFailure) -> bool:
    return failure.cause is not None and failure.cause.follows


def _is_of(thread: str, process: str) -> bool:
    return bool(thread) and thread.rpartition(" ")[0] == process


class LogWriter(NamedTuple):
    """Who wrote a line. process: its host, number and GPU. thread: the same with the thread."""

    host: str
    process: str
    thread: str


@dataclass
class FailureReader:
    """Reads lines in their order, and then tells the first failure."""

    _seen: list[tuple[str, NcclFailure]] = field(default_factory=list)  # by thread, or ""
    _pending: dict[str, NcclFailure] = field(default_factory=dict)  # warnings, by thread
    _last_error_follows: bool = False

    def framework_line(self, line: str) -> bool:
        """Take a line that is not NCCL's own. Returns whether it tells of an error of NCCL."""
        if not self._last_error_follows and not any(word in line for word in _FRAMEWORK_WORDS):
            return False
        text = line.strip()
        if self._last_error_follows and text:
            self._last_error_follows = False
            quoted_error = re.sub(r"^(?:\[?rank\d+\]?:|\(.*?\))\s*", "", text)
            self._seen.append(("", NcclFailure(quoted_error, "", cause_of(quoted_error))))
            return True
        last_error = _LAST_ERROR.search(text)
        if last_error and last_error[1]:
            self._seen.append(("", NcclFailure(last_error[1], "", cause_of(last_error[1]))))
            return True
        self._last_error_follows = bool(last_error)
        if _BUS_ERROR.search(text):
            self._seen.append(("", NcclFailure(text[:300], "", _BUS_ERROR_CAUSE)))
            return False
        if not _FRAMEWORK.search(text):
            return bool(last_error)
        cause = cause_of(text)
        self._seen.append(("", NcclFailure(text[:300], "", cause, general=cause is None)))
        return True

    def nccl_line(self, writer: LogWriter, level: str, message: str, source_file: str) -> None:
        """Take a line of NCCL. source_file: where in NCCL's source the line was written."""
        handed_up = _HANDED_UP.match(message)
        if level == "WARN":
            cause = cause_of(f"{source_file} {message}")
            failure = NcclFailure(message, writer.host, cause)
            if cause and cause.is_final:
                self._seen.append(("", failure))
            else:
                self._pending.setdefault(writer.thread, failure)
        elif handed_up and handed_up[1] not in ("0", _IN_PROGRESS):
            unnamed = NcclFailure(message, writer.host, cause_of(message), general=True)
            self._seen.append((writer.thread, self._pending.pop(writer.thread, unnamed)))
            return
        else:
            self._pending.pop(writer.thread, None)
        # NCCL went on without what it had warned of: this thread, or all of the process.
        if "Init COMPLETE" in message:
            self._seen = [entry for entry in self._seen if not _is_of(entry[0], writer.process)]
        elif level == "INFO" and _WENT_ON.match(message):
            self._seen = [entry for entry in self._seen if entry[0] != writer.thread]

    def first(self) -> NcclFailure | None:
        """Return the first failure that does not follow from another, or else the first."""
        failures = [failure for _, failure in self._seen]
        # A log that breaks off behind a warning has no line that hands it up.
        failures += [
            failure
            for failure in self._pending.values()
            if failure.cause and not _LIBRARY_PROBLEM.search(failure.line)
        ]
        special = [failure for failure in failures if not failure.general]
        primary = [failure for failure in special if not _follows(failure)]
        return next(iter([*primary, *special, *failures]), None)
