"""The findings of `podwright doctor` for the answers of hosts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.podwright import main
from podwright.hosts import OK, PROBLEM, WARNING, DoctorAnswer, DoctorFinding, examine, judge

FINE: dict[str, Any] = {
    "time": 100.0,
    "name": "n1",
    "python": "3.11.2",
    "podwright": "1.0",
    "mpirun": "5.0.8",
    "folder": True,
    "same_files": True,
    "subnets": [["10.1.0.0/16", "eth0", "10.1.0.1", True]],
    "port": 4711,
    "locked": -1,
    "held": ["user", ""],
    "back": "",
    "server": "",
}


def judged(**changed: Any) -> list[DoctorFinding]:
    answer = DoctorAnswer("n1", {**FINE, **changed}, before=99.0, after=101.0)
    return [finding for finding in judge(FINE, [answer]) if finding.level != OK]


def test_a_good_host_has_nothing_to_be_done() -> None:
    assert judged() == []
    answer = DoctorAnswer("n1", FINE, before=99.0, after=101.0)
    assert all(finding.todo == "" for finding in judge(FINE, [answer]))


@pytest.mark.parametrize(
    ("changed", "check", "level", "found", "todo"),
    [
        ({"podwright": "0.9"}, "Podwright", PROBLEM, "0.9, here 1.0", "rsync -a "),
        ({"python": "3.12.1"}, "Python", WARNING, "3.12.1, here 3.11.2", "rsync -a "),
        ({"mpirun": ""}, "Open MPI", WARNING, "there is none, here 5.0.8", "rsync -a "),
        ({"folder": False}, "files", PROBLEM, "is not there", "ssh n1 mkdir -p "),
        ({"same_files": False}, "files", WARNING, "a copy of this folder", "rsync -a "),
        ({"time": 161.0}, "clock", WARNING, "is 60 s off", "timedatectl set-ntp true"),
        ({"time": 89.0}, "clock", WARNING, "is 10 s off", "timedatectl set-ntp true"),
        ({"locked": 65536}, "memory", WARNING, "64 KiB may be locked", "memlock unlimited"),
        (
            {"held": ["", "unshare: Operation not permitted"]},
            "endings",
            WARNING,
            "no PID namespace (unshare: Operation not permitted): one watcher has to be left",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"back": "x: Permission denied"}, "ssh back", WARNING, "refuses the key", "ssh-copy-id"),
        ({"server": "Connection refused"}, "server", PROBLEM, "is not reached", "--vipu-server"),
        (
            {"subnets": [["10.2.0.0/16", "eth0", "10.2.0.1", True]]},
            "subnet",
            PROBLEM,
            "they share no subnet",
            "one network",
        ),
    ],
)
def test_each_finding_says_what_to_type(
    changed: dict[str, Any], check: str, level: str, found: str, todo: str
) -> None:
    (finding,) = judged(**changed)
    assert (finding.check, finding.level) == (check, level)
    assert found in finding.found
    assert todo in finding.todo


def test_two_hosts_of_one_name() -> None:
    answers = [DoctorAnswer(name, FINE, before=99.0, after=101.0) for name in ("n1", "n2")]
    (finding,) = [f for f in judge(FINE, answers) if f.level != OK]
    assert finding.found == "several are called n1"


def test_this_host_is_asked_without_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # of its own: others ask in the folder of the tests
    found = examine(["localhost"], os.environ)
    levels = {finding.check: finding.level for finding in found}
    assert levels["ssh"] == levels["Podwright"] == levels["files"] == levels["clock"] == OK
    assert os.listdir() == []


def test_the_command_prints_json_and_refuses_what_is_no_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["doctor", "--host", "localhost", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"host", "check", "level", "found", "todo"} == set(told[0])
    assert main(["doctor", "--host", "a;b"]) == 2
    assert "'a;b' is not the name of a host" in capsys.readouterr().err
    assert main(["doctor", "--hostfile", "/nowhere"]) == 2
