"""The load that traces ask for, and traces stretched to another one."""

from __future__ import annotations

import pytest

from podwright.errors import InvalidRequest
from podwright.replay import Trace, TraceJob
from podwright.replay.traces._offered_load import offered_load, stretch_for, stretched


def test_times_are_stretched_to_a_load() -> None:
    trace = Trace("t", [TraceJob("a", 0.0, 100.0, 32), TraceJob("b", 50.0, 100.0, 32)])
    at_half = stretched(trace, stretch_for([trace], [0.0], 64, 0.5))
    assert offered_load([at_half], [0.0], 64) == pytest.approx(0.5)
    with pytest.raises(InvalidRequest):
        stretch_for([Trace("t", [TraceJob("a", 0.0, 100.0, 32)])], [0.0], 64, 0.5)
