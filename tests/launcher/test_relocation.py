"""When a launch's instances are told to move: pure events in, actions out."""

from __future__ import annotations

from podwright.launcher.ending._move_decisions import COUNT_INTERVAL_S, Relocation
from podwright.launcher.watchers._launch_events import (
    CountListeners,
    ListenersCounted,
    MoveRequested,
    ReportMovable,
    TellListeners,
)

SIGNAL = 10


def movable() -> Relocation:
    """Two hosts with an instance each; both have been counted twice, and answered once."""
    made = Relocation((SIGNAL, 5.0), 2)
    assert made.tick(0.0, started=True) == [CountListeners(SIGNAL)]
    assert made.tick(COUNT_INTERVAL_S, started=True) == [CountListeners(SIGNAL)]
    assert made.counted(ListenersCounted("", 1), 0) == []
    assert ReportMovable(5.0) in made.counted(ListenersCounted("h2", 1), 0)
    return made


def test_a_count_from_before_the_request_tells_nobody() -> None:
    launch = movable()
    launch.requested(MoveRequested("m1", 60.0), 2.0)
    assert launch.tick(2.0, started=True) == [CountListeners(SIGNAL)]
    assert launch.counted(ListenersCounted("", 1), 0) == []
    assert launch.counted(ListenersCounted("h2", 1), 0) == []
    assert launch.word == ""
    # The instance on h2 has taken its handler back meanwhile.
    assert launch.counted(ListenersCounted("", 1), 0) == []
    assert launch.counted(ListenersCounted("h2", 0), 0) == []
    assert ReportMovable(0.0) in launch.tick(60.0, started=True)
    assert launch.word == ""


def test_all_that_listen_after_the_request_are_told() -> None:
    launch = movable()
    launch.requested(MoveRequested("m1", 60.0), 2.0)
    launch.tick(2.0, started=True)
    for _ in range(2):
        assert launch.counted(ListenersCounted("", 1), 0) == []
    assert launch.counted(ListenersCounted("h2", 1), 0) == []
    assert launch.counted(ListenersCounted("h2", 1), 0) == [TellListeners(SIGNAL, 60.0)]
    assert launch.word == "m1"
