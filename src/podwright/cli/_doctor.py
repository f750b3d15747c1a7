"""`podwright doctor`: whether poprun can launch over hosts, and what to type where it cannot."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def add_parser(verbs: Any, _words: Sequence[str] = ()) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "doctor",
        help="see whether programs can be launched over hosts",
        description="See whether poprun can launch over hosts: ssh, versions, files, networks, "
        "clocks, limits, and the way to the server. Each finding says what to type. "
        "Exit code 1 where there is a problem.",
    )
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("--host", "-H", metavar="HOSTS", help="such as n[1-4],m2 (this machine)")
    hosts.add_argument("--hostfile", metavar="FILE", help="a host or a range on each line")
    parser.add_argument("--vipu-server-host", metavar="HOST", help="that instances must reach")
    parser.add_argument("--vipu-server-port", metavar="PORT", type=int, default=0, help="(8090)")
    parser.add_argument("--vipu-allocation", metavar="NAME", help="that has to be there")
    parser.add_argument("--vipu-partition", metavar="NAME", help="that has to be ACTIVE")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """Run it. Returns the exit code."""
    import os

    from podwright.errors import InvalidRequest
    from podwright.hosts import PROBLEM, BadHostList, examine, expand, read_hosts

    try:
        if arguments.host:
            hosts = expand(arguments.host)
        elif not arguments.hostfile:
            hosts = ("localhost",)
        else:
            with open(arguments.hostfile, encoding="utf-8", errors="replace") as file:
                hosts = read_hosts(file.read(1 << 22), arguments.hostfile)
    except BadHostList as error:
        raise InvalidRequest(str(error)) from None
    except OSError as error:
        raise InvalidRequest(f"{arguments.hostfile} cannot be read: {error.strerror}") from None
    environ = os.environ
    at = arguments.vipu_server_host or environ.get("IPUOF_VIPU_API_HOST", "")
    port = arguments.vipu_server_port or environ.get("IPUOF_VIPU_API_PORT", "") or 8090
    try:
        number = int(port)
    except ValueError:
        raise InvalidRequest(f"IPUOF_VIPU_API_PORT={port!r} is no port") from None
    found = examine(hosts, environ, server=(at, number) if at else None)
    partition = arguments.vipu_partition or environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    allocation = arguments.vipu_allocation or ""
    if at or partition or allocation:
        from podwright.cli._doctor_server import ask_server

        own = str(number) if at else ""
        found += ask_server(environ, at, own, allocation, partition)
    if arguments.json:
        import json

        print(json.dumps([finding._asdict() for finding in found], indent=2))
    else:
        from podwright.cli._tables import table

        print(table(("Host", "Check", "Result", "Found"), [f[:4] for f in found]))
        todo = [f for f in found if f.todo]
        if todo:
            print("\nWhat to do:")
        for finding in todo:
            print(f"  {finding.host}, {finding.check}: {finding.todo}")
    return int(any(finding.level == PROBLEM for finding in found))
