"""Keys and copies onto hosts before a launch: a real sshd with a password, real rsync."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.lab import HostsLab
from tests.outer.test_hosts_launch import REPOSITORY, Hosts
from tests.outer.test_hosts_refused import done

pytestmark = [pytest.mark.outer]
LINE = ("--host=a,b,c", "--num-replicas=3", "--num-instances=3", "--launcher=local")
PASSWORD = "open sesame"
#: `openssl passwd -6 -salt podwright` of it.
HASH = (
    "$6$podwright$8NvqW3yLiyHnyJuACynbO46Pxu4FSswUv.Rgk3uILiHNH1xibR6HmRLU9FYsJC/"
    "Lo2QTamh80W/7VJ/z6JRmY."
)


@pytest.fixture(scope="module")
def lab() -> Iterator[HostsLab]:
    """Hosts b and c take root's password, which only they know, and no key yet."""
    with HostsLab(["a", "b", "c"]) as found:
        shadow = found.folder / "shadow"
        lines = Path("/etc/shadow").read_text().splitlines(keepends=True)
        rest = [line for line in lines if not line.startswith("root:")]
        shadow.write_text(f"root:{HASH}:19000:0:99999:7:::\n{''.join(rest)}")
        shadow.chmod(0o600)
        for name in ("b", "c"):
            config = found.folder / name / "sshd_config"
            text = config.read_text()
            assert "PasswordAuthentication no" in text
            config.write_text(
                text.replace("PasswordAuthentication no", "PasswordAuthentication yes")
            )
            (found.folder / name / "ssh" / "authorized_keys").write_text("")
            found.kill(name)
            found.revive(name)
            assert found.exec(name, "mount", "--bind", str(shadow), "/etc/shadow").returncode == 0
        yield found


@pytest.fixture
def hosts(lab: HostsLab) -> Iterator[Hosts]:
    found = Hosts(lab)
    found.environ["HOME"] = "/root"
    yield found
    for name in ("b", "c"):
        (lab.folder / name / "ssh" / "authorized_keys").write_text("")


def at_a_terminal(hosts: Hosts, *words: str, answer: str) -> tuple[int, str]:
    """A run at a terminal whose user types `answer` when asked for a password."""
    ours, theirs = os.openpty()
    poprun = ["env", "-C", str(REPOSITORY), sys.executable, "-m", "tests.launcher.alone", *words]
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *hosts.lab.place("a").wrap(poprun)],
        env=hosts.environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while data := _read(ours):
            said += data
            if said.endswith(b": ") and said.count(b"Password on") == 1 and answer:
                os.write(ours, answer.encode() + b"\n")
                answer = ""
    finally:
        os.close(ours)
    return process.wait(300), said.decode(errors="replace").replace("\r\n", "\n")


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # the last process has closed the terminal
        return b""


def test_one_password_brings_a_new_key_onto_all_hosts(hosts: Hosts) -> None:
    keys = hosts.lab.folder / "keys"
    own = ("--distribute-ssh-key", f"--distribute-ssh-key-path={keys}")
    words = (*own, "--distribute-ssh-key-type=ecdsa", *LINE, "hostname")
    code, said = at_a_terminal(hosts, *words, answer=PASSWORD)
    assert code == 0, said
    assert said.count("Password on b, c: ") == 1
    assert f"host c takes the key {keys}/id_ecdsa from now on" in said
    assert "[1,2]<stdout>: c\n" in re.sub(r"\x1b\[\d*m", "", said)
    assert PASSWORD not in said
    # Once there, nobody is asked again.
    code, out, err = hosts.run(*own, *LINE, "hostname")
    assert code == 0, err
    assert sorted(out.split()[1::2]) == ["a", "b", "c"]
    assert not list(Path("/tmp").glob("podwright-askpass-*"))
    assert "askpass" not in hosts.lab.exec("a", "ls", "/tmp").stdout
    hosts.leaves_nothing()


def test_a_wrong_password_is_said_for_each_host(hosts: Hosts) -> None:
    words = ("--distribute-ssh-key", *LINE, "hostname")
    code, said = at_a_terminal(hosts, *words, answer="open barley")
    assert code == 69, said
    assert "host b: it refuses the password; host c: it refuses the password" in said


def test_nobody_to_ask(hosts: Hosts) -> None:
    code, _, err = hosts.run("--distribute-ssh-key", *LINE, "hostname")
    assert code == 69, err
    assert "host b: it wants a password, and there is no terminal to ask at" in err


def test_a_host_whose_key_is_unknown_gets_no_password(hosts: Hosts) -> None:
    config = hosts.lab.folder / "a" / "ssh" / "config"
    before = config.read_text()
    (hosts.lab.folder / "a" / "ssh" / "known_hosts").unlink(missing_ok=True)
    config.write_text("Host *\nStrictHostKeyChecking ask\n")
    try:
        code, said = at_a_terminal(hosts, "--distribute-ssh-key", *LINE, "true", answer=PASSWORD)
    finally:
        config.write_text(before)
    assert code == 69
    assert "host b: its host key is not known here" in said
    assert "Password" not in said


def test_folders_are_on_all_hosts_before_the_program(hosts: Hosts) -> None:
    for name in ("b", "c"):
        ssh = hosts.lab.folder / name / "ssh"
        (ssh / "authorized_keys").write_text((hosts.lab.folder / "key.pub").read_text())
    done(hosts, "a", "mkdir", "-p", "/tmp/my code", "/tmp/sdk/lib")
    done(hosts, "a", "sh", "-c", "echo 'cat /tmp/sdk/lib/x; hostname' >'/tmp/my code/run'")
    done(hosts, "a", "sh", "-c", "echo it is there >/tmp/sdk/lib/x")
    hosts.environ |= {"POPLAR_SDK_ENABLED": "/tmp/sdk", "PYTHONPATH": str(REPOSITORY)}
    words = ("--synchronise-code", "--synchronise-poplar-sdk", *LINE, "sh", "run")
    code, out, err = hosts.run(*words, folder="/tmp/my code")
    assert code == 0, err
    assert sorted(out.splitlines()) == sorted(
        f"[1,{i}]<stdout>: {text}" for i, host in enumerate("abc") for text in (host, "it is there")
    )
    assert "/tmp/my code is on host b: 1 files were sent" in err
    _, _, err = hosts.run(*words, folder="/tmp/my code")
    assert "/tmp/sdk is on host c: 0 files were sent" in err
    hosts.leaves_nothing()


def test_a_copy_that_cannot_be_is_the_hosts_fault(hosts: Hosts) -> None:
    for name in ("b", "c"):
        ssh = hosts.lab.folder / name / "ssh"
        (ssh / "authorized_keys").write_text((hosts.lab.folder / "key.pub").read_text())
    done(hosts, "a", "mkdir", "-p", "/tmp/other")
    done(hosts, "c", "touch", "/tmp/other")
    hosts.environ["PYTHONPATH"] = str(REPOSITORY)
    code, _, err = hosts.run("--synchronise-code", *LINE, "true", folder="/tmp/other")
    assert code == 69
    assert "host c: /tmp/other: " in err
    hosts.leaves_nothing()
