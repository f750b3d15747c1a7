"""What a host is like, and how to act on it: name, networks, cores, processes, ways.

Parts that a launch on one host does not need are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names
from podwright.hosts._connection_peer import Peer, caller_of, peer_of, tcp_owner
from podwright.hosts._cores import (
    Cores,
    CpuCore,
    cores_of_sys,
    cores_of_xml,
    read_cores,
    read_list,
    write_list,
)
from podwright.hosts._errors import BadHostList, HostsError
from podwright.hosts._hostlist import expand, expand_names, fold, fold_names, read_hosts
from podwright.hosts._kubernetes_workers import (
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    WORKER_ROLE,
    WORKER_VARIABLE,
    WORKERS_VARIABLE,
    job_workers,
    shared_host,
    worker_command,
)
from podwright.hosts._local_host_facts import find_program, forbidden_program, free_port, host_name
from podwright.hosts._loopback import is_loopback
from podwright.hosts._namespaces import (
    HELD,
    HELD_BY_CGROUP,
    HELD_BY_USER,
    NOT_HELD,
    HeldChild,
    can_hold,
    fork_held,
    hide_shared_memory,
    in_words,
    mount_private,
    name_process,
    outside,
)
from podwright.hosts._network import Subnet, address_in, common_subnet, is_here, subnets
from podwright.hosts._processes import (
    Process,
    become_subreaper,
    children,
    descendants,
    end_with_parent,
    has_children,
    kill_all,
    marked,
    processes,
    reap,
    run_lives,
    see_end,
)
from podwright.hosts._remote_commands import RemoteAnswer, ask_all
from podwright.hosts._run_cgroup import (
    enter_group,
    group_is_empty,
    in_group,
    kill_group,
    leave_group,
    make_group,
    remove_group,
)
from podwright.hosts._sd_notify import tell_ready
from podwright.hosts._srun import job_hosts, srun_command
from podwright.hosts._ssh import explain, ssh_command
from podwright.hosts._switch_topology import NetworkSwitch, read_switches, scattered

if TYPE_CHECKING:
    from podwright.hosts._copies import Copied, copy_folder, show_percents
    from podwright.hosts._device_cgroups import (
        CgroupsV1,
        CgroupsV2,
        DeviceCgroups,
        RecordedCgroups,
        find_device_cgroups,
    )
    from podwright.hosts._host_launch_check import (
        OK,
        PROBLEM,
        WARNING,
        DoctorAnswer,
        DoctorFinding,
        examine,
        judge,
    )
    from podwright.hosts._munge import FakeMunge, Munge, MungeError, Vouched, Vouches
    from podwright.hosts._ssh_key_distribution import KEY_TYPES, NoKey, distribute_key, find_key

__all__ = [
    "HELD",
    "HELD_BY_CGROUP",
    "HELD_BY_USER",
    "KEYS_VARIABLE",
    "KEY_TYPES",
    "LAUNCHER_ROLE",
    "NOT_HELD",
    "OK",
    "PROBLEM",
    "WARNING",
    "WORKERS_VARIABLE",
    "WORKER_ROLE",
    "WORKER_VARIABLE",
    "BadHostList",
    "CgroupsV1",
    "CgroupsV2",
    "Copied",
    "Cores",
    "CpuCore",
    "DeviceCgroups",
    "DoctorAnswer",
    "DoctorFinding",
    "FakeMunge",
    "HeldChild",
    "HostsError",
    "Munge",
    "MungeError",
    "NetworkSwitch",
    "NoKey",
    "Peer",
    "Process",
    "RecordedCgroups",
    "RemoteAnswer",
    "Subnet",
    "Vouched",
    "Vouches",
    "address_in",
    "ask_all",
    "become_subreaper",
    "caller_of",
    "can_hold",
    "children",
    "common_subnet",
    "copy_folder",
    "cores_of_sys",
    "cores_of_xml",
    "descendants",
    "distribute_key",
    "end_with_parent",
    "enter_group",
    "examine",
    "expand",
    "expand_names",
    "explain",
    "find_device_cgroups",
    "find_key",
    "find_program",
    "fold",
    "fold_names",
    "forbidden_program",
    "fork_held",
    "free_port",
    "group_is_empty",
    "has_children",
    "hide_shared_memory",
    "host_name",
    "in_group",
    "in_words",
    "is_here",
    "is_loopback",
    "job_hosts",
    "job_workers",
    "judge",
    "kill_all",
    "kill_group",
    "leave_group",
    "make_group",
    "marked",
    "mount_private",
    "name_process",
    "outside",
    "peer_of",
    "processes",
    "read_cores",
    "read_hosts",
    "read_list",
    "read_switches",
    "reap",
    "remove_group",
    "run_lives",
    "scattered",
    "see_end",
    "shared_host",
    "show_percents",
    "srun_command",
    "ssh_command",
    "subnets",
    "tcp_owner",
    "tell_ready",
    "worker_command",
    "write_list",
]

#: Each module, and the names that come from it.
_LATER = {
    "_copies": ("Copied", "copy_folder", "show_percents"),
    "_device_cgroups": (
        "CgroupsV1",
        "CgroupsV2",
        "DeviceCgroups",
        "RecordedCgroups",
        "find_device_cgroups",
    ),
    "_host_launch_check": (
        "OK",
        "PROBLEM",
        "WARNING",
        "DoctorAnswer",
        "DoctorFinding",
        "examine",
        "judge",
    ),
    "_ssh_key_distribution": ("KEY_TYPES", "NoKey", "distribute_key", "find_key"),
    "_munge": ("FakeMunge", "Munge", "MungeError", "Vouched", "Vouches"),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
