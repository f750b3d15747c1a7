"""The values of podwright.v1 for jobs that wait in a scheduler's own queue.

Listings show them beside the server's queue. A scheduler also says which of its jobs waits first
for devices of each pod. The server keeps devices for these jobs, in turn (`Enqueue`).
"""

from __future__ import annotations

from podwright.wire._method import (
    EVERYBODY,
    About,
    AuditEntry,
    May,
    Method,
    ObjectKind,
    Repeat,
    Rights,
)
from podwright.wire._value import Value
from podwright.wire._values import Empty, ListRequest


class JobInfo(Value):
    """A job that waits for devices in a scheduler's queue. scheduler: who said so; the server
    writes it. place: in that queue, from 1. needs: what it waits for, in words. since: seconds
    since 1970; 0: unknown. reserved: how many devices the server keeps for it. estimate: seconds
    until all of its devices are expected to be free; 0: not known. The server writes both.
    """

    id: str
    scheduler: str = ""
    place: int = 0
    owner: str = ""
    asked: str = ""
    needs: str = ""
    priority: int = 0
    since: float = 0.0
    cluster: str = ""
    allocation: str = ""
    reserved: int = 0
    estimate: float = 0.0


class JobReport(Value):
    """All jobs that wait in a scheduler's queue now, in its order. They replace the jobs of its
    last report. guest: the name of the scheduler, by which several of one account are told apart;
    at most 64 printable characters. Empty: slurm, as older services of Slurm report.
    """

    jobs: list[JobInfo] = []
    guest: str = ""


class PoolHead(Value):
    """The job of a scheduler that it names for a pool: it waits for devices and for nothing else.
    Each task of a job array is a job, by a name of its own.

    cluster, allocation: the pool; an empty allocation: the whole cluster. job: empty: no job waits.
    sizes: devices of each block that the job needs, each a power of two. due: it has waited so long
    that devices are to be kept for it until there are enough; until then it gets what is free at
    once, in turn with others. Entries of several pools with the same job are one request: it gets
    all of its blocks or none.
    """

    cluster: str
    allocation: str = ""
    job: str = ""
    owner: str = ""
    sizes: list[int] = []
    due: bool = False


class PartitionEnd(Value):
    """When a scheduler's own job ends at the latest. seconds: from now."""

    partition: str
    seconds: float


class EnqueueRequest(Value):
    """All pools that a scheduler uses, each with its first job. They replace those of its last
    call. guest: the name of the scheduler, as in JobReport and CreateRequest. end_times: of the
    jobs that hold devices, where the scheduler knows them.
    """

    guest: str = ""
    pools: list[PoolHead] = []
    end_times: list[PartitionEnd] = []


class KeptPlace(Value):
    """The devices of a pool that are kept for one request. Some may still be in use.

    job: the caller's own job; empty: somebody else's request. offered: all of the devices are free,
    and the caller may create partitions there.
    """

    cluster: str
    allocation: str
    job: str = ""
    devices: list[tuple[int, int]] = []
    offered: bool = False


class EnqueueReply(Value):
    """What is kept in the caller's pools. sharing: the server keeps devices for schedulers. An
    older one that was told not to says no, and keeps none.
    """

    sharing: bool = False
    places: list[KeptPlace] = []


class ShareRequest(Value):
    """Set the weight of a guest of the common queue: of a scheduler by its name (`slurm`,
    `kubernetes NAME`), or of `people`. It is stored, and comes before the server's options.
    remove: forget the stored weight instead.
    """

    guest: str
    weight: float = 1.0
    remove: bool = False


class ShareInfo(Value):
    """The weight of a guest. source: STORED by an administrator, OPTION of the server, or DEFAULT.

    active: the guest shares the pods now. False: no scheduler of this name has called in the last
    minute.
    """

    guest: str
    weight: float = 1.0
    source: str = "DEFAULT"
    active: bool = False


class ShareList(Value):
    """The guests of the common queue, and all others that have a weight, by name."""

    shares: list[ShareInfo] = []
    next_page_token: str = ""


class JobList(Value):
    """Jobs that wait in schedulers' queues, each scheduler's in its own order."""

    jobs: list[JobInfo] = []
    next_page_token: str = ""


_SCHEDULER_RIGHTS = Rights(May.ANY, May.NO, May.NO, May.OWN, May.NO)
CALLS = (
    Method(
        "ReportJobs",
        JobReport,
        Empty,
        _SCHEDULER_RIGHTS,
        Repeat.SAME,
        None,
        AuditEntry.NOTHING,
        stored=False,
    ),
    Method(
        "Enqueue",
        EnqueueRequest,
        EnqueueReply,
        _SCHEDULER_RIGHTS,
        Repeat.SAME,
        None,
        AuditEntry.NOTHING,
        stored=False,
        reveals="which devices are kept for others",
    ),
    Method("ListJobs", ListRequest, JobList, EVERYBODY, Repeat.CHANGES_NOTHING),
    Method(
        "SetShare",
        ShareRequest,
        ShareInfo,
        repeat=Repeat.SAME,
        about=About(ObjectKind.SHARE, ("guest",)),
    ),
    Method("ListShares", ListRequest, ShareList, repeat=Repeat.CHANGES_NOTHING),
)
