"""Whether programs can be launched over hosts, and what to type where they cannot.

All hosts are asked for their facts at once. Judging the facts is a pure function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podwright.hosts._host_report import MARK
from podwright.hosts._namespaces import HELD_BY_CGROUP, in_words
from podwright.hosts._network import Subnet, common_subnet, is_here
from podwright.hosts._remote_commands import ask_all
from podwright.hosts._ssh import explain, ssh_command

OK, WARNING, PROBLEM = "ok", "warning", "problem"
#: Seconds within which a host must report all its facts.
LIMIT = 30.0
#: The most seconds by which clocks may differ before logs and time-outs suffer.
SKEW = 2.0
#: Bytes of memory that drivers of devices and of fast networks need to lock.
LOCKED = 1 << 30


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

    folder = os.getcwd()
    server_host, port = server or ("", 0)
    with _token(folder) as token:
        own = facts(folder, token, "", server_host, str(port))
        words = [folder, token, str(own["name"]), server_host, str(port)]
        return judge(own, ask(hosts, words, environ))


def ask(
    hosts: Sequence[str], words: Sequence[str], environ: Mapping[str, str]
) -> list[DoctorAnswer]:
    """Ask all hosts at once and return their answers; this host itself is asked without ssh."""
    import json

    probe = [sys.executable, "-P", "-m", "podwright.hosts._host_report", *words]
    ways = [probe if is_here(host) else ssh_command(host, probe, environ) for host in hosts]
    replies = iter(ask_all([command for command in ways if command is not None], environ, LIMIT))
    answers = []
    for host, command in zip(hosts, ways, strict=True):
        if command is None:
            problem = ("there is no ssh on PATH", "apt-get install openssh-client")
            answers.append(DoctorAnswer(host, None, problem))
            continue
        answer = next(replies)
        lines = [line for line in answer.out.splitlines() if line.startswith(MARK)]
        if lines:
            facts = json.loads(lines[-1].removeprefix(MARK))
            answers.append(DoctorAnswer(host, facts, before=answer.before, after=answer.after))
        else:
            answers.append(DoctorAnswer(host, None, explain(host, answer.err, answer.code)))
    return answers


def judge(own: Mapping[str, Any], answers: Sequence[DoctorAnswer]) -> list[DoctorFinding]:
    """Return findings from answers and the facts of the asking host."""
    findings = []
    for answer in answers:
        if answer.facts is None:
            findings.append(DoctorFinding(answer.host, "ssh", PROBLEM, *answer.problem))
        else:
            findings += _host(own, answer, answer.facts)
    reached = [answer.facts for answer in answers if answer.facts]
    shared = common_subnet([_subnets(report) for report in (own, *reached)])
    hosts = f"{len(reached)} hosts"
    if shared:
        findings.append(DoctorFinding(hosts, "subnet", OK, f"{shared} is on all"))
    elif reached:
        todo = "Put all hosts on one network; podwright doctor --json lists those of each"
        findings.append(DoctorFinding(hosts, "subnet", PROBLEM, "they share no subnet", todo))
    names = [report["name"] for report in reached]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        todo = "hostnamectl set-hostname NAME, another one on each"
        findings.append(
            DoctorFinding(hosts, "names", PROBLEM, f"several are called {twice[0]}", todo)
        )
    return findings


def _host(
    own: Mapping[str, Any], answer: DoctorAnswer, report: Mapping[str, Any]
) -> list[DoctorFinding]:
    import shlex

    host, prefix = answer.host, shlex.quote(sys.prefix)
    copy = f"rsync -a {prefix}/ {host}:{prefix}/"
    folder = shlex.quote(os.getcwd())
    findings = []

    def add(check: str, good: bool, text: str, todo: str = "", level: str = PROBLEM) -> None:
        findings.append(
            DoctorFinding(host, check, OK if good else level, text, "" if good else todo)
        )

    add("ssh", True, f"answers as {report['name']}")
    if report["back"] is not None:
        problem, todo = explain(str(own["name"]), report["back"], 255)
        text = "leads back" if not report["back"] else f"does not lead back: {problem}"
        # Podwright's launcher needs no way back. Open MPI started by hand, and other launchers,
        # do.
        add("ssh back", not report["back"], text, f"On {host}: {todo}", WARNING)
    for check, name in (("Podwright", "podwright"), ("Python", "python"), ("Open MPI", "mpirun")):
        same = report[name] == own[name] and bool(report[name])
        text = report[name] or "there is none"
        text += "" if same else f", here {own[name] or 'none'}"
        add(check, same, text, copy, PROBLEM if name == "podwright" else WARNING)
    if not report["folder"]:
        todo = f"ssh {host} mkdir -p {folder}; rsync -a {folder}/ {host}:{folder}/"
        add("files", False, f"{os.getcwd()} is not there", todo)
    elif report["same_files"] is not None:
        text = (
            "the same file system" if report["same_files"] else "a copy of this folder, or another"
        )
        add("files", report["same_files"], text, f"rsync -a {folder}/ {host}:{folder}/", WARNING)
    skew = max(answer.before - report["time"], report["time"] - answer.after, 0.0)
    text = "agrees" if skew <= SKEW else f"is {skew:.0f} s off"
    add("clock", skew <= SKEW, text, f"On {host}: timedatectl set-ntp true", WARNING)
    add("ports", bool(report["port"]), "there are free ones" if report["port"] else "none is free")
    lockable_bytes = report["locked"]
    enough = lockable_bytes < 0 or lockable_bytes >= LOCKED
    text = "unlimited" if lockable_bytes < 0 else f"{lockable_bytes >> 10} KiB may be locked"
    todo = f"On {host}, in /etc/security/limits.conf: * - memlock unlimited"
    add("memory", enough, text, todo, WARNING)
    how, containment, *private = report.get("held", ("", "an older Podwright does not say"))
    todo = f"On {host}, as root: sysctl -w user.max_user_namespaces=100000"
    if "apparmor" in containment or "ermission" in containment or "ermitted" in containment:
        todo += "; on Ubuntu too: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    add(
        "endings",
        how not in ("", HELD_BY_CGROUP),
        f"instances are in {in_words(how, containment, *private)}",
        todo,
        WARNING,
    )
    if report["server"] is not None:
        text = "is reached" if not report["server"] else f"is not reached: {report['server']}"
        todo = "Name it as all hosts can reach it: --vipu-server-host NAME"
        add("server", not report["server"], text, todo)
    return findings


def _subnets(report: Mapping[str, Any]) -> list[Subnet]:
    return [Subnet(*words) for words in report["subnets"]]


class _token:
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
