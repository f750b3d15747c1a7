"""Whether programs can be launched over hosts, and what to type where they cannot.

Each host is asked for its facts, all at once; the judging of facts is a function of values alone.
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
#: Seconds that a host has for all its facts.
LIMIT = 30.0
#: Seconds between clocks that logs and time-outs survive.
SKEW = 2.0
#: Bytes of memory that devices' drivers and fast networks want to lock.
LOCKED = 1 << 30


class DoctorFinding(NamedTuple):
    """What one check found on one host. todo: what to type; empty where nothing is to be done."""

    host: str
    check: str
    level: str
    found: str
    todo: str = ""


class DoctorAnswer(NamedTuple):
    """What a host said, or why it could not. before, after: when it was asked, and answered."""

    host: str
    facts: Mapping[str, Any] | None
    problem: tuple[str, str] = ("", "")
    before: float = 0.0
    after: float = 0.0


def examine(
    hosts: Sequence[str], environ: Mapping[str, str], *, server: tuple[str, int] | None = None
) -> list[DoctorFinding]:
    """Ask all hosts and judge what they say. server: host and port that instances must reach."""
    from podwright.hosts._host_report import facts

    folder = os.getcwd()
    at, port = server or ("", 0)
    with _token(folder) as token:
        own = facts(folder, token, "", at, str(port))
        words = [folder, token, str(own["name"]), at, str(port)]
        return judge(own, ask(hosts, words, environ))


def ask(
    hosts: Sequence[str], words: Sequence[str], environ: Mapping[str, str]
) -> list[DoctorAnswer]:
    """The answers of all hosts, asked at the same time; of this host itself without ssh."""
    import json

    probe = [sys.executable, "-P", "-m", "podwright.hosts._host_report", *words]
    ways = [probe if is_here(host) else ssh_command(host, probe, environ) for host in hosts]
    told = iter(ask_all([way for way in ways if way is not None], environ, LIMIT))
    answers = []
    for host, way in zip(hosts, ways, strict=True):
        if way is None:
            problem = ("there is no ssh on PATH", "apt-get install openssh-client")
            answers.append(DoctorAnswer(host, None, problem))
            continue
        said = next(told)
        lines = [line for line in said.out.splitlines() if line.startswith(MARK)]
        if lines:
            facts = json.loads(lines[-1].removeprefix(MARK))
            answers.append(DoctorAnswer(host, facts, before=said.before, after=said.after))
        else:
            answers.append(DoctorAnswer(host, None, explain(host, said.err, said.code)))
    return answers


def judge(own: Mapping[str, Any], answers: Sequence[DoctorAnswer]) -> list[DoctorFinding]:
    """Findings from answers, beside the facts of the host that asks."""
    found = []
    for answer in answers:
        if answer.facts is None:
            found.append(DoctorFinding(answer.host, "ssh", PROBLEM, *answer.problem))
        else:
            found += _host(own, answer, answer.facts)
    reached = [answer.facts for answer in answers if answer.facts]
    shared = common_subnet([_subnets(told) for told in (own, *reached)])
    hosts = f"{len(reached)} hosts"
    if shared:
        found.append(DoctorFinding(hosts, "subnet", OK, f"{shared} is on all"))
    elif reached:
        todo = "Put all hosts on one network; podwright doctor --json lists those of each"
        found.append(DoctorFinding(hosts, "subnet", PROBLEM, "they share no subnet", todo))
    names = [told["name"] for told in reached]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        todo = "hostnamectl set-hostname NAME, another one on each"
        found.append(DoctorFinding(hosts, "names", PROBLEM, f"several are called {twice[0]}", todo))
    return found


def _host(
    own: Mapping[str, Any], answer: DoctorAnswer, told: Mapping[str, Any]
) -> list[DoctorFinding]:
    import shlex

    host, prefix = answer.host, shlex.quote(sys.prefix)
    copy = f"rsync -a {prefix}/ {host}:{prefix}/"
    folder = shlex.quote(os.getcwd())
    found = []

    def say(check: str, good: bool, text: str, todo: str = "", level: str = PROBLEM) -> None:
        found.append(DoctorFinding(host, check, OK if good else level, text, "" if good else todo))

    say("ssh", True, f"answers as {told['name']}")
    if told["back"] is not None:
        problem, todo = explain(str(own["name"]), told["back"], 255)
        text = "leads back" if not told["back"] else f"does not lead back: {problem}"
        # Ours needs no way back; Open MPI started by hand, and other launchers, do.
        say("ssh back", not told["back"], text, f"On {host}: {todo}", WARNING)
    for check, name in (("Podwright", "podwright"), ("Python", "python"), ("Open MPI", "mpirun")):
        same = told[name] == own[name] and bool(told[name])
        text = told[name] or "there is none"
        text += "" if same else f", here {own[name] or 'none'}"
        say(check, same, text, copy, PROBLEM if name == "podwright" else WARNING)
    if not told["folder"]:
        todo = f"ssh {host} mkdir -p {folder}; rsync -a {folder}/ {host}:{folder}/"
        say("files", False, f"{os.getcwd()} is not there", todo)
    elif told["same_files"] is not None:
        text = "the same file system" if told["same_files"] else "a copy of this folder, or another"
        say("files", told["same_files"], text, f"rsync -a {folder}/ {host}:{folder}/", WARNING)
    skew = max(answer.before - told["time"], told["time"] - answer.after, 0.0)
    text = "agrees" if skew <= SKEW else f"is {skew:.0f} s off"
    say("clock", skew <= SKEW, text, f"On {host}: timedatectl set-ntp true", WARNING)
    say("ports", bool(told["port"]), "there are free ones" if told["port"] else "none is free")
    locked = told["locked"]
    enough = locked < 0 or locked >= LOCKED
    text = "unlimited" if locked < 0 else f"{locked >> 10} KiB may be locked"
    todo = f"On {host}, in /etc/security/limits.conf: * - memlock unlimited"
    say("memory", enough, text, todo, WARNING)
    how, why, *private = told.get("held", ("", "an older Podwright does not say"))
    todo = f"On {host}, as root: sysctl -w user.max_user_namespaces=100000"
    if "apparmor" in why or "ermission" in why or "ermitted" in why:
        todo += "; on Ubuntu too: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    say(
        "endings",
        how not in ("", HELD_BY_CGROUP),
        f"instances are in {in_words(how, why, *private)}",
        todo,
        WARNING,
    )
    if told["server"] is not None:
        text = "is reached" if not told["server"] else f"is not reached: {told['server']}"
        todo = "Name it as all hosts can reach it: --vipu-server-host NAME"
        say("server", not told["server"], text, todo)
    return found


def _subnets(told: Mapping[str, Any]) -> list[Subnet]:
    return [Subnet(*words) for words in told["subnets"]]


class _token:
    """A file with a name of its own in a folder, for as long as needed; "" where none can be."""

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
