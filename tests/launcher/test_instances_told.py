"""The signals that tell instances about a move, and the processes that catch one."""

from __future__ import annotations

import os
import signal

import pytest

from podwright.hosts import Process
from podwright.launcher.options._move_notice import (
    DEFAULT_MOVE_SIGNAL,
    catches_signal,
    count_listening_instances,
    signal_name,
    signal_number,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("USR1", 10), ("sigusr2", 12), (" RTMIN+10 ", 44), ("44", 44), ("SIGRTMIN+0", 34)],
)
def test_a_signal_is_named_by_name_or_number(text: str, number: int) -> None:
    assert signal_number(text) == number
    assert signal_number(signal_name(number)) == number


@pytest.mark.parametrize("text", ["", "KILL", "STOP", "TERM", "INT", "CHLD", "0", "32", "65", "x"])
def test_signals_that_cannot_tell_anything_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  it says nothing: the option's meaning does
        signal_number(text)


def test_the_kernel_says_who_listens() -> None:
    before = signal.signal(DEFAULT_MOVE_SIGNAL, lambda *_: None)
    try:
        assert catches_signal(os.getpid(), DEFAULT_MOVE_SIGNAL)
        signal.signal(DEFAULT_MOVE_SIGNAL, signal.SIG_IGN)
        assert not catches_signal(os.getpid(), DEFAULT_MOVE_SIGNAL)
        signal.signal(DEFAULT_MOVE_SIGNAL, signal.SIG_DFL)
        assert not catches_signal(os.getpid(), DEFAULT_MOVE_SIGNAL)
    finally:
        signal.signal(DEFAULT_MOVE_SIGNAL, before)
    assert not catches_signal(1 << 30, DEFAULT_MOVE_SIGNAL), "there is no such process"


def test_an_instance_counts_once_however_many_of_it_listen() -> None:
    # 10 and 20 stand in front of instances; 11 is about to become its program.
    parents = {10: 1, 11: 10, 12: 11, 13: 12, 20: 1, 21: 20, 30: 1}
    listeners = [Process(pid, parents[pid], 0, "S") for pid in (12, 13, 30)]
    assert count_listening_instances(listeners, parents, {10, 11, 20}) == 1
    both = [*listeners, Process(21, 20, 0, "S")]
    assert count_listening_instances(both, parents, {10, 11, 20}) == 2
