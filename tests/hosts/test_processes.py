"""Process trees are found completely and ended completely, and no other process is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.hosts import (
    children,
    descendants,
    find_program,
    free_port,
    host_name,
    kill_all,
    marked,
    processes,
    reap,
)

_SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
_PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {_SLEEPER!r}], start_new_session=True)
child.wait()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        yield process
        if process.poll() is None:
            kill_all([*descendants(process.pid), processes()[process.pid]], signal.SIGKILL)


def test_this_process_is_there_and_its_parent_is_right() -> None:
    found = processes()
    assert found[os.getpid()].parent == os.getppid()
    assert not found[os.getpid()].dead


def test_a_tree_is_seen_parents_first_and_spared_where_asked(
    parent: subprocess.Popen[str],
) -> None:
    tree = [p.pid for p in descendants(os.getpid())]  # earlier tests may have left theirs here
    (below,) = descendants(parent.pid)
    assert tree.index(parent.pid) < tree.index(below.pid)
    assert parent.pid in children(os.getpid())
    spared = {p.pid for p in descendants(os.getpid(), spare=[parent.pid])}
    assert not spared & {parent.pid, below.pid}
    kill_all([below, processes()[parent.pid]], signal.SIGKILL)
    parent.wait(300)
    deadline = time.monotonic() + 300
    while (left := processes().get(below.pid)) and not left.dead:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_number_that_another_process_has_now_is_not_killed(
    parent: subprocess.Popen[str],
) -> None:
    (process,) = [p for p in descendants(os.getpid()) if p.pid == parent.pid]
    kill_all([process._replace(start=process.start - 1)], signal.SIGKILL)
    assert parent.poll() is None
    below = descendants(parent.pid)
    kill_all([process, *below], signal.SIGKILL)  # without its child it would end by itself
    assert parent.wait(300) == -signal.SIGKILL


def test_marked_by_environment() -> None:
    value = os.urandom(8).hex()
    process = subprocess.Popen(
        [sys.executable, "-c", _SLEEPER],
        env={**os.environ, "PODWRIGHT_X": value},
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    assert [p.pid for p in marked("PODWRIGHT_X", value)] == [process.pid]
    process.kill()
    process.wait()
    assert marked("PODWRIGHT_X", value) == []


def test_children_that_ended_are_told() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], dict(os.environ))
    ended: dict[int, int] = {}
    deadline = time.monotonic() + 300
    while pid not in ended and time.monotonic() < deadline:
        reap(ended.__setitem__)
        time.sleep(0.01)
    assert ended[pid] == 7


def test_programs_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    environ = {"PATH": f"/nowhere:{tmp_path}"}
    assert find_program("tool", environ) is None, "it may not be executed"
    tool.chmod(0o755)
    assert find_program("tool", environ) == str(tool)
    assert find_program("tool", {"PATH": "/nowhere"}) is None
    assert find_program("tool", {"PATH": "/nowhere"}, str(tmp_path)) == str(tool)
    assert find_program(str(tool), {}) == str(tool)
    assert find_program(str(tmp_path), {}) is None, "a folder"
    assert find_program("", environ) is None


def test_facts() -> None:
    assert host_name()
    assert "." not in host_name()
    assert 0 < free_port() < 65536
