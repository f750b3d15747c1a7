"""`podwright doctor`: prints what works here, what does not, and which command would help."""

from __future__ import annotations

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._verb import Verb


class DoctorOptions(opt.OptionTable):
    """The options of `doctor`."""

    host = opt.optional(
        "such as n[1-4],m2 (this machine)", "HOSTS", rivals="hosts", name="--host -H"
    )
    hostfile = opt.optional("a host or a range on each line", "FILE", rivals="hosts")
    vipu_server_host = opt.optional("that instances must reach", "HOST")
    vipu_server_port = opt.value("(8090)", "PORT", int, 0)
    vipu_allocation = opt.optional("that has to be there", "NAME")
    vipu_partition = opt.optional("that has to be ACTIVE", "NAME")
    json = opt.JSON


def _run(arguments: DoctorOptions) -> int:
    """Run the verb. Returns the exit code."""
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
    findings = examine(hosts, environ, server=(at, number) if at else None)
    partition = arguments.vipu_partition or environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    allocation = arguments.vipu_allocation or ""
    if at or partition or allocation:
        from podwright.cli.serve._doctor_server import ask_server

        own = str(number) if at else ""
        findings += ask_server(environ, at, own, allocation, partition)
    elif not (arguments.host or arguments.hostfile):
        from podwright.cli.serve._doctor_site import site_findings

        findings += site_findings(environ)
    if arguments.json:
        import json

        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        from podwright.tables import table

        print(table(("Host", "Check", "Result", "Found"), [f[:4] for f in findings]))
        todo = [f for f in findings if f.todo]
        if todo:
            print("\nWhat to do:")
        for finding in todo:
            print(f"  {finding.host}, {finding.check}: {finding.todo}")
    return int(any(finding.level == PROBLEM for finding in findings))


VERBS = (
    Verb(
        "doctor",
        DoctorOptions,
        _run,
        help="see what works here, and what to do about what does not",
        description="Without options: this machine, the server with its store and agents, Slurm, "
        "Kubernetes and GPUs. With hosts: whether poprun can launch over them: ssh, versions, "
        "files, networks, clocks, limits, and the way to the server. Each finding says what to "
        "type. Exit code 1 where there is a problem.",
    ),
)
