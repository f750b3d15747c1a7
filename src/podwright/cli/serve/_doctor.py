"""`podwright doctor`: prints what works here, what does not, and which command would help."""

from __future__ import annotations

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt


class _DoctorOptions(opt.OptionTable):
    host = opt.optional(
        "such as n[1-4],m2 (this machine)", "HOSTS", rivals="hosts", name="--host -H"
    )
    hostfile = opt.optional("a host or a range on each line", "FILE", rivals="hosts")
    vipu_server_host = opt.optional("that instances must reach", "HOST")
    vipu_server_port = opt.value("(8090)", "PORT", int, 0)
    vipu_allocation = opt.optional("that has to be there", "NAME")
    vipu_partition = opt.optional("that has to be ACTIVE", "NAME")
    json = opt.JSON


def _run(arguments: _DoctorOptions) -> int:
    import os

    from podwright.doctor import Subject, diagnose, findings_text
    from podwright.hosts import PROBLEM

    subject = Subject(
        arguments.host or "",
        arguments.hostfile or "",
        arguments.vipu_server_host or "",
        arguments.vipu_server_port,
        arguments.vipu_allocation or "",
        arguments.vipu_partition or "",
    )
    findings = diagnose(subject, os.environ)
    values = [finding._asdict() for finding in findings]
    show_result(arguments.json, values, lambda: findings_text(findings))
    return int(any(finding.level == PROBLEM for finding in findings))


VERBS = (
    Verb(
        "doctor",
        _DoctorOptions,
        _run,
        help="see what works here, and what to do about what does not",
        description="Without options: this machine, the server with its store and agents, Slurm, "
        "Kubernetes and GPUs. With hosts: whether poprun can launch over them: ssh, versions, "
        "files, networks, clocks, limits, and the way to the server. Each finding says what to "
        "type. Exit code 1 where there is a problem.",
    ),
)
