"""`podwright doctor` on real hosts: what is wrong with each is found, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.outer.lab import HostsLab

pytestmark = [pytest.mark.outer]
REPOSITORY = Path(__file__).parents[2]


def test_each_host_is_told_what_it_lacks() -> None:
    with HostsLab(["a", "b", "c", "d"]) as lab:
        (lab.folder / "c" / "ssh" / "authorized_keys").write_text("")
        package = str(REPOSITORY / "src" / "podwright")
        lab.exec("d", "mount", "-t", "tmpfs", "tmpfs", package)
        command = [sys.executable, "-m", "podwright.cli.podwright", "doctor"]
        environ = {**os.environ, "PWD": str(REPOSITORY)}
        done = lab.exec("a", *command, "--host=[b-d]", env=environ)
        assert done.returncode == 2  # letters are no range
        line = ("--host=a,b,c,d", "--json")
        done = lab.exec("a", *command, *line, env=environ)
        assert done.returncode == 1, done.stderr
    told = {(f["host"], f["check"]): f for f in json.loads(done.stdout)}
    problems = {key for key, finding in told.items() if finding["level"] == "problem"}
    assert problems == {("c", "ssh"), ("d", "ssh")}
    assert told["c", "ssh"]["todo"] == "Put your key there: ssh-copy-id c"
    assert "Podwright is not installed there" in told["d", "ssh"]["found"]
    assert told["b", "ssh"]["found"] == "answers as b"
    assert told["b", "ssh back"]["found"] == "leads back"
    assert told["b", "files"]["found"] == "the same file system"
    assert "10.77.0.0/24" in told["2 hosts", "subnet"]["found"]
