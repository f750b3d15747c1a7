"""The service answers, refuses strangers, and outlives whatever scripts do to it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RUN = """
import os, sys, logging, time
from pathlib import Path
from podwright.gpu.lint import CachedSite
from podwright.gpu.submission import _lint_service
_lint_service._QUESTION_TIMEOUT_S = 60  # a slow machine is not an endless script
if sys.argv[2] == "endless":
    real = _lint_service.answer
    def answer(text, site):
        while "#endless" in text: time.sleep(0.01)
        assert "#fault" not in text
        return real(text, site)
    _lint_service.answer, _lint_service._QUESTION_TIMEOUT_S = answer, 10
    logging.basicConfig(stream=sys.stderr)
who = frozenset() if sys.argv[2] == "nobody" else frozenset({os.geteuid()})
up = lambda: print("up", flush=True)
_lint_service.serve(Path(sys.argv[1]), CachedSite(), who, workers=1, ready=up)
"""
CLEAN = "\n\n#!/bin/bash\nhostname\n"


@contextmanager
def service(path: Path, how: str = "") -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", _RUN, str(path), how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
        try:
            yield one
        finally:
            one.terminate()
            one.wait()


def ask(path: Path, question: str) -> str:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(60)
        door.connect(str(path))
        parts = []
        with suppress(ConnectionResetError, BrokenPipeError):  # a stranger is not even heard
            door.sendall(question.encode())
            door.shutdown(socket.SHUT_WR)
            while part := door.recv(4096):
                parts.append(part)
        return b"".join(parts).decode()


def test_the_lint_service_answers_and_leaves_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "run" / "lint.sock"
    with service(path) as one:
        assert ask(path, CLEAN) == "clean\n"
        assert ask(path, "\n\n#!/bin/bash\nhostname\n#SBATCH -N 2\n").startswith("mistake\n")
        assert ask(path, "") == "clean\n"
        one.send_signal(signal.SIGTERM)
        assert one.wait(60) == 0
    assert not path.exists()


def test_an_old_socket_is_replaced_and_a_living_service_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lint.sock"
    with service(path) as one:
        one.kill()
        one.wait()
        assert path.exists()
        # Its worker sees that it is alone, and goes.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as door:
                if door.connect_ex(str(path)):
                    break
            time.sleep(0.1)
    with service(path):
        assert ask(path, CLEAN) == "clean\n"
        argv = [sys.executable, "-c", _RUN, str(path), ""]
        second = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert "another service answers here" in second.stderr
        assert ask(path, CLEAN) == "clean\n"


def test_the_lint_service_answers_only_those_who_may_ask(tmp_path: Path) -> None:
    path = tmp_path / "lint.sock"
    with service(path, "nobody"):
        assert ask(path, CLEAN) == ""


def test_a_script_that_does_not_end_ends_its_worker_alone(tmp_path: Path) -> None:
    path = tmp_path / "lint.sock"
    with service(path, "endless") as one:
        assert ask(path, CLEAN) == "clean\n"
        assert ask(path, f"{CLEAN}#endless\n") == ""
        assert ask(path, CLEAN) == "clean\n"
        assert ask(path, f"{CLEAN}#fault\n") == ""
        assert ask(path, CLEAN) == "clean\n"
        one.terminate()
        assert one.stderr is not None
        said = one.stderr.read()
    assert "a worker ended (-14)" in said
    assert "AssertionError" in said


def test_a_question_without_an_end_is_not_read_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "lint.sock"
    with service(path), socket.socket(socket.AF_UNIX) as door:
        door.connect(str(path))
        door.settimeout(60)
        sent = 0
        try:
            while sent < 1 << 26:
                sent += door.send(b"#" * (1 << 16))
        except OSError:
            pass
        assert sent < 1 << 25
        assert ask(path, CLEAN) == "clean\n"
