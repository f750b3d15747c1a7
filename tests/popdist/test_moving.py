"""What a program does so that its launch can move."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import popdist
from tests.popdist.mpi import environment, launch

NUMBER = signal.SIGRTMIN + 10


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(NUMBER)
    yield
    signal.signal(NUMBER, before)


def test_where_nobody_would_ask_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODWRIGHT_MOVE_SIGNAL", raising=False)
    before = signal.getsignal(NUMBER)
    assert popdist.onMove(print) is False
    assert signal.getsignal(NUMBER) is before


def test_its_callback_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODWRIGHT_MOVE_SIGNAL", str(int(NUMBER)))
    calls: list[str] = []
    assert popdist.onMove(lambda: calls.append("asked"))
    os.kill(os.getpid(), NUMBER)
    assert calls == ["asked"]


def test_only_in_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODWRIGHT_MOVE_SIGNAL", str(int(NUMBER)))
    raised: list[Exception] = []

    def register() -> None:
        try:
            popdist.onMove()
        except popdist.BadUse as error:
            raised.append(error)

    thread = threading.Thread(target=register)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])


STEPS = """
import os
import popdist

popdist.init()
popdist.onMove()
me = popdist.getInstanceIndex()
for step in range(10):
    if popdist.mustMove():
        print(me, step, flush=True)
        break
    if (me, step) == (1, 3):  # one of them is told before the other
        os.kill(os.getpid(), int(os.environ["PODWRIGHT_MOVE_SIGNAL"]))
"""


def test_all_instances_end_at_the_same_step(tmp_path: Path) -> None:
    variables = [
        {**environment(i, 1, 2), "PODWRIGHT_MOVE_SIGNAL": str(int(NUMBER))} for i in range(2)
    ]
    ended = launch(tmp_path, ["-c", STEPS], variables)
    assert sorted(ended.out.splitlines()) == ["0 4", "1 4"], ended.err
