"""Hosts that poprun cannot use: each is named, with what to type, in bounded time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.lab import HostsLab
from tests.outer.lab._release import clean
from tests.outer.test_hosts_launch import Hosts

pytestmark = [pytest.mark.outer]
#: In the place of Python on host b: an instance that is sent a function gets Debian 13's own, with
#: our modules; all else, this one.
_OTHER = """#!/bin/bash
case "$*" in
*podwright.functions*)
    export PYTHONPATH=/srv:/opt PYTHONDONTWRITEBYTECODE=1
    exec unshare -m --propagation private bash -euc '
        mount --rbind {ours} {root}/srv; mount --rbind {needs} {root}/opt
        for each in dev proc sys tmp; do mount --rbind /$each {root}/$each; done
        exec chroot {root} /usr/bin/python3 "$@"
    ' - "$@"
esac
exec -a "$0" {python} "$@"
"""
_LAUNCH = """
import podwright
def work(): return "called"
job = podwright.launch(work, instances=2, host="a,b", launcher="local", offline_mode=True)
error = job.exception(300)
data = error.data
print(type(error).__name__, data["host"], data["here"], data["there"], error, sep="|")
"""
LINE = ("--host=a,b", "--num-replicas=2", "--num-instances=2", "--launcher=local")


@pytest.fixture(scope="module")
def lab() -> Iterator[HostsLab]:
    with HostsLab(["a", "b", "c"]) as found:
        yield found


@pytest.fixture
def hosts(lab: HostsLab) -> Iterator[Hosts]:
    """Both hosts as new."""
    found = Hosts(lab)
    kept = lab.folder / "kept"
    if not kept.exists():
        shutil.copytree(lab.folder / "a" / "ssh", kept / "a")
        shutil.copytree(lab.folder / "b" / "ssh", kept / "b")
    yield found
    for name in ("a", "b"):
        shutil.copytree(kept / name, lab.folder / name / "ssh", dirs_exist_ok=True)
        (lab.folder / name / "ssh" / "known_hosts").unlink(missing_ok=True)
    if not lab.is_up("b"):
        lab.revive("b")
    lab.exec("a", "rm", "-f", "/tmp/calls", "/tmp/only-on-a")


def done(hosts: Hosts, name: str, *words: str) -> None:
    """A step of the test's own on a host, which must succeed."""
    found = hosts.lab.exec(name, *words)
    assert found.returncode == 0, found.stderr


def refused(hosts: Hosts, *words: str, code: int = 69) -> str:
    got, out, err = hosts.run(*LINE, *(words or ("true",)))
    assert (got, out) == (code, ""), err
    errors = [line for line in err.splitlines() if line.startswith("POPRUN ERROR")]
    assert len(errors) == 1, err
    hosts.leaves_nothing()
    calls = hosts.lab.exec("a", "cat", "/tmp/calls").stdout
    assert "Acquire" not in calls  # nothing was held meanwhile
    return errors[0]


def test_a_host_that_is_down(hosts: Hosts) -> None:
    hosts.lab.kill("b")
    assert "host b: it does not answer. Check that it is up: ping b." in refused(hosts)


def test_a_host_of_no_such_name(hosts: Hosts) -> None:
    got, _, err = hosts.run("--host=a,nobody", *LINE[1:], "true")
    assert got == 69
    assert "host nobody: there is no host of that name" in err


def test_a_host_whose_key_has_changed(hosts: Hosts) -> None:
    ssh = hosts.lab.folder / "a" / "ssh"
    other = (hosts.lab.folder / "key.pub").read_text()
    (ssh / "known_hosts").write_text(f"b {other}")
    (ssh / "config").write_text("Host *\nStrictHostKeyChecking yes\n")
    said = refused(hosts)
    assert "host b: its host key has changed" in said
    assert "ssh-keygen -R b" in said


def test_a_host_that_is_not_known(hosts: Hosts) -> None:
    (hosts.lab.folder / "a" / "ssh" / "config").write_text("Host *\nStrictHostKeyChecking yes\n")
    assert "host b: its host key is not known here. Confirm it once: ssh b." in refused(hosts)


def test_a_host_that_refuses_the_key(hosts: Hosts) -> None:
    (hosts.lab.folder / "b" / "ssh" / "authorized_keys").write_text("")
    said = refused(hosts)
    assert "host b: it refuses the key" in said
    assert "ssh-copy-id b" in said


def test_a_host_with_another_version(hosts: Hosts) -> None:
    """The package under the same path, from another time."""
    package = hosts.lab.folder / "other"
    shutil.copytree(Path(__file__).parents[2] / "src" / "podwright", package)
    text = (package / "_version.py").read_text()
    assert '__version__ = "' in text
    (package / "_version.py").write_text(text.replace('__version__ = "', '__version__ = "9.'))
    target = str(Path(__file__).parents[2] / "src" / "podwright")
    done(hosts, "b", "mount", "--bind", str(package), target)
    try:
        assert "host b: it has Podwright 9." in refused(hosts)
    finally:
        done(hosts, "b", "umount", target)


def test_a_host_without_our_package(hosts: Hosts) -> None:
    target = str(Path(__file__).parents[2] / "src" / "podwright")
    done(hosts, "b", "mount", "-t", "tmpfs", "tmpfs", target)
    try:
        assert "host b: Podwright is not installed there" in refused(hosts)
    finally:
        done(hosts, "b", "umount", target)


def test_a_host_without_python(hosts: Hosts) -> None:
    target = str(Path(sys.executable).parent)
    done(hosts, "b", "mount", "-t", "tmpfs", "tmpfs", target)
    try:
        assert "host b: this host's Python is not there" in refused(hosts)
    finally:
        done(hosts, "b", "umount", target)


def test_a_host_whose_python_is_another(hosts: Hosts) -> None:
    """What a function was sent to really has another Python: it says so, with both versions."""
    folder = Path(sys.executable).parent
    places = {
        "root": clean("trixie"),
        "ours": Path(__file__).parents[2] / "src",
        "needs": sysconfig.get_path("purelib"),
        "python": os.path.realpath(sys.executable),
    }
    script = hosts.lab.folder / "python"
    script.write_text(_OTHER.format(**places))
    script.chmod(0o755)
    done(hosts, "b", "mount", "-t", "tmpfs", "tmpfs", str(folder))
    done(hosts, "b", "cp", str(script), sys.executable)
    try:
        words = hosts.lab.place("a").wrap(["env", "-C", "/tmp", sys.executable, "-c", _LAUNCH])
        found = subprocess.run(
            words, env=hosts.environ, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stderr
        kind, host, here, there, said = found.stdout.strip().split("|")
        assert (kind, host) == ("PythonMismatch", "b"), said
        assert here == f"CPython {sys.version.split()[0]}"
        assert there.startswith("CPython 3.13.")
        assert f"the function was sent by {here}, and host b has {there}" in said
        hosts.leaves_nothing()
    finally:
        done(hosts, "b", "umount", str(folder))


def test_a_host_without_space(hosts: Hosts) -> None:
    """Its /tmp takes no new file: how many bytes an empty one costs is another on each kernel."""
    used = hosts.lab.exec("b", "df", "--output=iused", "/tmp").stdout.split()[-1]
    done(hosts, "b", "mount", "-o", f"remount,nr_inodes={used}", "/tmp")
    assert hosts.lab.exec("b", "touch", "/tmp/more").returncode != 0
    try:
        said = refused(hosts)
    finally:
        done(hosts, "b", "mount", "-o", "remount,nr_inodes=100000", "/tmp")
    assert "host b: No space left on device" in said
    assert "Make room there" in said


def test_a_program_that_is_not_there_on_one_host(hosts: Hosts) -> None:
    done(hosts, "a", "cp", "/bin/true", "/tmp/only-on-a")
    said = refused(hosts, "/tmp/only-on-a", code=127)
    assert "host b: there is no program '/tmp/only-on-a'" in said


def test_several_hosts_are_told_in_one_line(hosts: Hosts) -> None:
    got, _, err = hosts.run(
        *("--host=a,nobody,noone", "--num-replicas=3", "--num-instances=3"),
        *("--launcher=local", "true"),
    )
    assert got == 69
    assert "2 of 2 other hosts cannot be used: nobody: there is no host" in err
