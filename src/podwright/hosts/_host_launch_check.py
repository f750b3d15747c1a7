"""Whether programs can be launched over hosts, and what to type where they cannot.

All hosts are asked for their facts at once. Judging the facts is a pure function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podwright.ground.plural import counted
from podwright.hosts._host_report import FACTS_LINE_PREFIX
from podwright.hosts._namespaces import HELD_BY_CGROUP, in_words
from podwright.hosts._network import Subnet, common_subnet, is_here
from podwright.hosts._remote_commands import ask_all
from podwright.hosts._ssh import explain, ssh_command

OK, WARNING, PROBLEM = "ok", "warning", "problem"
#: Seconds within which a host must report all its facts.
LIMIT = 30.0
#: The most seconds by which clocks may differ before logs and time-outs suffer.
MAX_SKEW_S = 2.0
#: Bytes of memory that drivers of devices and of fast networks need to lock.
NEEDED_LOCKED_BYTES = 1 << 30


class DoctorFinding(NamedTuple):
    """The result of one check on one host.

    todo: the command to type; empty where nothing is to be done.
    """

    host: str
    check: str
    level: str
    found: str
    todo: str = ""


class DoctorAnswer(NamedTuple):
    """The facts of a host, or why it has none.

    before, after: times of the question and the answer.
    """

    host: str
    facts: Mapping[str, Any] | None
    problem: tuple[str, str] = ("", "")
    before: float = 0.0
    after: float = 0.0


def examine(
    hosts: Sequence[str], environ: Mapping[str, str], *, server: tuple[str, int] | None = None
) -> list[DoctorFinding]:
    """Ask all hosts for their facts and judge them.

    server: host and port that instances must reach.
    """
    from podwright.hosts._host_report import facts

    current_folder = os.getcwd()
    server_host, port = server or ("", 0)
    with _unique_temporary_file(current_folder) as token_name:
        own_facts = facts(current_folder, token_name, "", server_host, str(port))
        report_arguments = [
            current_folder,
            token_name,
            str(own_facts["name"]),
            server_host,
            str(port),
        ]
        return judge(own_facts, ask(hosts, report_arguments, environ))


def ask(
    hosts: Sequence[str], report_arguments: Sequence[str], environ: Mapping[str, str]
) -> list[DoctorAnswer]:
    """Ask all hosts at once and return their answers; this host itself is asked without ssh."""
    import json

    report_command = [sys.executable, "-P", "-m", "podwright.hosts._host_report", *report_arguments]
    host_commands = [
        report_command if is_here(host) else ssh_command(host, report_command, environ)
        for host in hosts
    ]
    replies = iter(
        ask_all([command for command in host_commands if command is not None], environ, LIMIT)
    )
    answers = []
    for host, command in zip(hosts, host_commands, strict=True):
        if command is None:
            problem = ("there is no ssh on PATH", "apt-get install openssh-client")
            answers.append(DoctorAnswer(host, None, problem))
            continue
        remote_answer = next(replies)
        fact_lines = [
            line for line in remote_answer.out.splitlines() if line.startswith(FACTS_LINE_PREFIX)
        ]
        if fact_lines:
            facts = json.loads(fact_lines[-1].removeprefix(FACTS_LINE_PREFIX))
            answers.append(
                DoctorAnswer(host, facts, before=remote_answer.before, after=remote_answer.after)
            )
        else:
            answers.append(
                DoctorAnswer(host, None, explain(host, remote_answer.err, remote_answer.code))
            )
    return answers


def judge(own_facts: Mapping[str, Any], answers: Sequence[DoctorAnswer]) -> list[DoctorFinding]:
    """Return findings from answers and the facts of the asking host."""
    findings = []
    for answer in answers:
        if answer.facts is None:
            findings.append(DoctorFinding(answer.host, "ssh", PROBLEM, *answer.problem))
        else:
            findings += _judge_host(own_facts, answer, answer.facts)
    reached_facts = [answer.facts for answer in answers if answer.facts]
    shared_subnet = common_subnet(
        [_host_subnets(host_facts) for host_facts in (own_facts, *reached_facts)]
    )
    hosts_text = f"{counted(len(reached_facts), 'host')}"
    if shared_subnet:
        findings.append(DoctorFinding(hosts_text, "subnet", OK, f"{shared_subnet} is on all"))
    elif reached_facts:
        todo = "Put all hosts on one network; podwright doctor --json lists those of each"
        findings.append(DoctorFinding(hosts_text, "subnet", PROBLEM, "they share no subnet", todo))
    host_names = [host_facts["name"] for host_facts in reached_facts]
    repeated_names = sorted({name for name in host_names if host_names.count(name) > 1})
    if repeated_names:
        todo = "hostnamectl set-hostname NAME, another one on each"
        findings.append(
            DoctorFinding(
                hosts_text, "names", PROBLEM, f"several are called {repeated_names[0]}", todo
            )
        )
    return findings


def _judge_host(
    own_facts: Mapping[str, Any], answer: DoctorAnswer, host_facts: Mapping[str, Any]
) -> list[DoctorFinding]:
    import shlex

    host, install_prefix = answer.host, shlex.quote(sys.prefix)
    copy_command = f"rsync -a {install_prefix}/ {host}:{install_prefix}/"
    quoted_folder = shlex.quote(os.getcwd())
    findings = []

    def add(
        check: str, is_good: bool, finding_text: str, todo: str = "", level: str = PROBLEM
    ) -> None:
        findings.append(
            DoctorFinding(
                host, check, OK if is_good else level, finding_text, "" if is_good else todo
            )
        )

    add("ssh", True, f"answers as {host_facts['name']}")
    if host_facts["back"] is not None:
        problem, todo = explain(str(own_facts["name"]), host_facts["back"], 255)
        finding_text = "leads back" if not host_facts["back"] else f"does not lead back: {problem}"
        # Podwright's launcher needs no way back. Open MPI started by hand, and other launchers,
        # do.
        add("ssh back", not host_facts["back"], finding_text, f"On {host}: {todo}", WARNING)
    for check, fact_key in (
        ("Podwright", "podwright"),
        ("Python", "python"),
        ("Open MPI", "mpirun"),
    ):
        is_same = host_facts[fact_key] == own_facts[fact_key] and bool(host_facts[fact_key])
        finding_text = host_facts[fact_key] or "there is none"
        finding_text += "" if is_same else f", here {own_facts[fact_key] or 'none'}"
        add(
            check,
            is_same,
            finding_text,
            copy_command,
            PROBLEM if fact_key == "podwright" else WARNING,
        )
    if not host_facts["folder"]:
        todo = (
            f"ssh {host} mkdir -p {quoted_folder}; rsync -a {quoted_folder}/ "
            f"{host}:{quoted_folder}/"
        )
        add("files", False, f"{os.getcwd()} is not there", todo)
    elif host_facts["same_files"] is not None:
        finding_text = (
            "the same file system"
            if host_facts["same_files"]
            else "a copy of this folder, or another"
        )
        add(
            "files",
            host_facts["same_files"],
            finding_text,
            f"rsync -a {quoted_folder}/ {host}:{quoted_folder}/",
            WARNING,
        )
    skew_s = max(answer.before - host_facts["time"], host_facts["time"] - answer.after, 0.0)
    finding_text = "agrees" if skew_s <= MAX_SKEW_S else f"is {skew_s:.0f} s off"
    add(
        "clock", skew_s <= MAX_SKEW_S, finding_text, f"On {host}: timedatectl set-ntp true", WARNING
    )
    add(
        "ports",
        bool(host_facts["port"]),
        "there are free ones" if host_facts["port"] else "none is free",
    )
    lockable_bytes = host_facts["locked"]
    is_enough = lockable_bytes < 0 or lockable_bytes >= NEEDED_LOCKED_BYTES
    finding_text = (
        "unlimited" if lockable_bytes < 0 else f"{lockable_bytes >> 10} KiB may be locked"
    )
    todo = f"On {host}, in /etc/security/limits.conf: * - memlock unlimited"
    add("memory", is_enough, finding_text, todo, WARNING)
    hold_method, hold_reason, *private_flags = host_facts.get(
        "held", ("", "an older Podwright does not say")
    )
    todo = f"On {host}, as root: sysctl -w user.max_user_namespaces=100000"
    if "apparmor" in hold_reason or "ermission" in hold_reason or "ermitted" in hold_reason:
        todo += "; on Ubuntu too: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    add(
        "endings",
        hold_method not in ("", HELD_BY_CGROUP),
        f"instances are in {in_words(hold_method, hold_reason, *private_flags)}",
        todo,
        WARNING,
    )
    if host_facts["server"] is not None:
        finding_text = (
            "is reached" if not host_facts["server"] else f"is not reached: {host_facts['server']}"
        )
        todo = "Name it as all hosts can reach it: --vipu-server-host NAME"
        add("server", not host_facts["server"], finding_text, todo)
    return findings


def _host_subnets(host_facts: Mapping[str, Any]) -> list[Subnet]:
    return [Subnet(*fields) for fields in host_facts["subnets"]]


class _unique_temporary_file:
    """A file with a unique name in a folder, while it is needed; "" where none can be made."""

    def __init__(self, folder: str) -> None:
        import secrets

        self._path = os.path.join(folder, f".podwright-doctor-{secrets.token_hex(8)}")

    def __enter__(self) -> str:
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            self._path = ""
        return os.path.basename(self._path)

    def __exit__(self, *_: object) -> None:
        if self._path:
            os.unlink(self._path)
