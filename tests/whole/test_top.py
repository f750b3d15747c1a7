"""`podwright top` in a terminal, of a real server."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from tests.whole.conftest import BIN, Pod


class Terminal:
    """A command on a terminal of 80x24, and all that it wrote."""

    def __init__(self, pod: Pod, *words: str) -> None:
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [BIN / words[0], *words[1:]],
            env={**pod.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        os.close(follower)
        self.written = b""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 300
        while text.encode() not in self.written:
            assert time.monotonic() < deadline, self.written[-3000:]
            assert self.read() or self.process.poll() is None, self.written[-3000:]

    def read(self) -> bool:
        if not select.select([self.leader], [], [], 1)[0]:
            return False
        try:
            data = os.read(self.leader, 65536)
        except OSError:  # its other end is closed
            return False
        self.written += data
        return bool(data)

    def end(self) -> int:
        deadline = time.monotonic() + 300
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self.read()
        os.close(self.leader)
        return self.process.returncode


def test_top_shows_the_pod_in_a_terminal(shared16: Pod) -> None:
    shared16.good("vipu", "create", "partition", "first", "--size", "4")
    terminal = Terminal(shared16, "podwright", "top", "--interval", "0.1")
    terminal.until("first")
    terminal.until("SIMULATED")
    shared16.good("vipu", "create", "partition", "second", "--size", "2")
    terminal.until("second")
    os.write(terminal.leader, b"q")
    assert terminal.end() == 0


def test_gc_monitor_live_is_the_same_screen(shared16: Pod) -> None:
    terminal = Terminal(shared16, "gc-monitor", "--live")
    terminal.until("Machines")
    os.write(terminal.leader, b"q")
    assert terminal.end() == 0


def test_without_a_terminal_it_says_what_would_work(shared16: Pod) -> None:
    ran = shared16.run("podwright", "top")
    assert ran.code == 2
    assert "gc-monitor --json" in ran.err
