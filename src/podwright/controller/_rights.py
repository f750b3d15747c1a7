"""Which role may make which call on whose object: the one table.

The checks themselves stand where the objects are known (`_caller`, `_machines`,
`_exclusive_allocations`); a test walks every cell of this table through a real server, over every
door, and holds them to it. The documentation prints it.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class May(enum.Enum):
    """What a role may do with a call."""

    ANY = "any"  #: whosever the object is
    OWN = "own"  #: on its own objects, or to make one; a list shows its own alone
    JOBS = "jobs"  #: in the name of a uid and a job, and on what it made so
    NO = "no"


class Rights(NamedTuple):
    """One call's row. anonymous: a caller on TCP who shows nothing, where the server is not
    secure; a secure one answers none of those."""

    administrator: May
    user: May
    reader: May
    scheduler: May
    anonymous: May


_ALL: Final = Rights(May.ANY, May.ANY, May.ANY, May.ANY, May.ANY)
_ADMINISTRATOR: Final = Rights(May.ANY, May.NO, May.NO, May.NO, May.NO)
_SHOWN: Final = Rights(May.ANY, May.OWN, May.OWN, May.OWN, May.OWN)
_CHANGE: Final = Rights(May.ANY, May.OWN, May.NO, May.JOBS, May.OWN)
_LINE: Final = Rights(May.ANY, May.OWN, May.NO, May.NO, May.OWN)

#: Calls of podwright.v1 by name, those of the vendor's protocol as `virmgrpc.NAME`.
RIGHTS: Final[dict[str, Rights]] = {
    "GetServerInfo": _ALL,
    # On the Unix socket alone, where the kernel vouches for the uid that it is bound to.
    "IssueToken": Rights(May.ANY, May.ANY, May.ANY, May.ANY, May.NO),
    "ListClusters": _ALL,
    "ListAllocations": _ALL,
    "ListDevices": _ALL,
    "ListPartitions": _ALL,
    "ListLeases": _ALL,
    "ListWaiters": _ALL,
    "ListAgents": _ALL,
    "ListQuotas": _SHOWN,
    "ListEvents": _SHOWN,
    "GetPartition": _ALL,
    "Explain": _ALL,
    "CreatePartition": _CHANGE,
    "ResetPartition": _CHANGE,
    "RemovePartition": _CHANGE,
    "Acquire": _CHANGE,
    "Renew": _CHANGE,
    "Release": _CHANGE,
    "Wait": _LINE,
    "Leave": _LINE,
    "SetQuota": _ADMINISTRATOR,
    "DrainMachine": _ADMINISTRATOR,
    "ResumeMachine": _ADMINISTRATOR,
    "Backup": _ADMINISTRATOR,
    "AnnounceAgent": _ALL,  # a hint, which changes nothing that is served
    "DiscoverAgents": _ADMINISTRATOR,
    "CreateAgent": _ADMINISTRATOR,
    "RemoveAgent": _ADMINISTRATOR,
    "CreateCluster": _ADMINISTRATOR,
    "ChangeCluster": _ADMINISTRATOR,
    "RemoveCluster": _ADMINISTRATOR,
    "TestCluster": _ADMINISTRATOR,
    "CreateAllocation": _ADMINISTRATOR,
    "RemoveAllocation": _ADMINISTRATOR,
    "CreateUser": _ADMINISTRATOR,
    "ListUsers": _ADMINISTRATOR,
    "RemoveUser": _ADMINISTRATOR,
    "RevokeCertificate": _ADMINISTRATOR,
    "virmgrpc.GetVersion": _ALL,
    "virmgrpc.ListPartitions": _ALL,
    "virmgrpc.ListIPUAttributes": _ALL,
    "virmgrpc.GetPartitionIpuofConfig": _SHOWN,
    "virmgrpc.GetPartitionStatus": _ALL,
    # It can name no job, so a scheduler creates nothing by it.
    "virmgrpc.CreatePartition": _LINE,
    "virmgrpc.ResetPartition": _CHANGE,
    "virmgrpc.RemovePartition": _CHANGE,
}


def rights_page() -> str:
    """The table for the documentation, in Markdown."""
    words = {May.ANY: "yes", May.OWN: "own", May.JOBS: "its jobs'", May.NO: "-"}
    lines = [
        f"| call | {' | '.join(Rights._fields)} |",
        "|---" * (len(Rights._fields) + 1) + "|",
    ]
    for call, rights in RIGHTS.items():
        lines.append(f"| `{call}` | {' | '.join(words[may] for may in rights)} |")
    return "\n".join(lines) + "\n"
