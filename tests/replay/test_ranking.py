"""What replay recommends: never the worse way, and nothing where differences are noise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podwright.replay._advice import advice
from podwright.replay._ranking import WayMeasures, clear_winner_index
from podwright.replay._report_types import WayFigures
from podwright.replay.traces._trace import Trace

EAGLE = {
    "native": WayMeasures(0.620, 32 * 3600, 5.0),
    "host mapping": WayMeasures(0.626, 62 * 3600, 9.0),
}
NOISE = WayMeasures(0.01, 3600.0, 0.5)

values = st.builds(
    WayMeasures,
    st.floats(0.0, 1.0),
    st.floats(0.0, 1e6),
    st.floats(1.0, 1e4),
)
noises = st.builds(WayMeasures, st.floats(0.0, 0.2), st.floats(0.0, 1e4), st.floats(0.0, 10.0))


@given(st.lists(values, min_size=2, max_size=6), noises)
def test_no_other_way_beats_the_winner_in_all_three(
    found: list[WayMeasures], noise: WayMeasures
) -> None:
    best = clear_winner_index(found, noise)
    if best is not None:
        taken = found[best]
        assert not any(
            other.used >= taken.used
            and other.wait <= taken.wait
            and other.slowdown <= taken.slowdown
            for place, other in enumerate(found)
            if place != best
        )


@given(st.lists(values, min_size=2, max_size=6), noises)
def test_the_order_of_ways_decides_nothing(found: list[WayMeasures], noise: WayMeasures) -> None:
    forwards, backwards = clear_winner_index(found, noise), clear_winner_index(found[::-1], noise)
    assert (forwards is None) == (backwards is None)
    if forwards is not None and backwards is not None:
        assert found[forwards] == found[::-1][backwards]


@given(values, st.lists(values, max_size=4), noises)
def test_a_way_that_is_clearly_best_in_all_three_wins(
    best: WayMeasures, others: list[WayMeasures], noise: WayMeasures
) -> None:
    worse = [
        WayMeasures(
            min(other.used, best.used) - 2 * noise.used - 0.01,
            max(other.wait, best.wait) + 2 * noise.wait + 1.0,
            max(other.slowdown, best.slowdown) + 2 * noise.slowdown + 0.1,
        )
        for other in [*others, best]
    ]
    assert clear_winner_index([*worse, best], noise) == len(worse)


def row(name: str, found: WayMeasures) -> WayFigures:
    spread = {"mean": found.wait, "p50": 960.0, "p95": 4000.0, "p99": 5000.0}
    return {
        "way": name,
        "devices": 64,
        "jobs": 0,
        "refused": {},
        "refused_device_hours": 0.0,
        "used": found.used,
        "held": found.used,
        "free_of_no_use": 0.0,
        "makespan_s": 0.0,
        "wait": spread,
        "bounded_slowdown": {**spread, "mean": found.slowdown},
        "by_size": [],
        "users": [],
        "events": 0,
        "simpler": [],
    }


def test_the_shorter_wait_wins_where_the_use_is_the_same_but_for_noise() -> None:
    rows = [row(name, found) for name, found in EAGLE.items()]
    (line,) = advice(Trace("test", []), rows, {}, rows[0], noise=NOISE)
    assert line.startswith(
        "Take native. native uses 62.0% of the devices, with a mean wait of 32.0 h"
    )
    assert "The runner-up: host mapping uses 62.6%" in line
    assert "within this trace's noise" in line


def test_more_use_and_longer_waits_have_no_clear_winner() -> None:
    rows = [row(name, found) for name, found in EAGLE.items()]
    (line,) = advice(Trace("test", []), rows, {}, rows[0], noise=NOISE._replace(used=0.001))
    assert line.startswith("No clear winner: native uses 62.0%")


def test_where_nothing_differs_the_waits_are_stated() -> None:
    rows = [row("native", EAGLE["native"])]
    (line,) = advice(Trace("test", []), rows, {}, rows[0], noise=NOISE)
    assert line == (
        "Nothing stands out. Under native, half of the jobs wait up to 16 min, and one in twenty "
        "longer than 67 min."
    )
