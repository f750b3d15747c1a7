"""What a host is like, and how to act on it: for now this host, and the processes on it."""

from podwright.hosts._cores import (
    Core,
    Cores,
    cores_of_sys,
    cores_of_xml,
    read_cores,
    read_list,
    write_list,
)
from podwright.hosts._local import find_program, free_port, host_name
from podwright.hosts._processes import (
    Process,
    become_subreaper,
    children,
    descendants,
    kill_all,
    marked,
    processes,
    reap,
)

__all__ = [
    "Core",
    "Cores",
    "Process",
    "become_subreaper",
    "children",
    "cores_of_sys",
    "cores_of_xml",
    "descendants",
    "find_program",
    "free_port",
    "host_name",
    "kill_all",
    "marked",
    "processes",
    "read_cores",
    "read_list",
    "reap",
    "write_list",
]
