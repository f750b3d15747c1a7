"""A collective's time, divided into waiting for others and transfer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podwright.timeline import Timeline, TrackSlice
from podwright.timeline._collective_times import CollectiveTime, arrivals, split_time


def collective(*calls: tuple[int, int], flow: int = 7) -> Timeline:
    """A timeline with a collective: when each of its members entered and left it."""
    slices = [
        TrackSlice(track, "allGather", "collective", begin, end, flows=(flow,))
        for track, (begin, end) in enumerate(calls)
    ]
    return Timeline({}, slices, [], 0, True)


def split(timeline: Timeline) -> list[CollectiveTime]:
    entered = arrivals(timeline)
    return [split_time(piece, entered) for piece in timeline.slices]


def test_the_first_instance_in_a_collective_waits_for_the_last() -> None:
    assert split(collective((10, 60), (50, 61), (30, 60))) == [(40, 10), (0, 11), (20, 10)]


def test_an_instance_that_leaves_before_the_last_enters_waits_as_long_as_it_stays() -> None:
    assert split(collective((10, 15), (50, 60))) == [(5, 0), (0, 10)]


def test_a_collective_that_only_one_instance_reported_counts_no_waiting() -> None:
    timeline = collective((10, 60))
    assert split(timeline) == [(0, 50)]
    assert split_time(timeline.slices[0]._replace(flows=()), {}) == (0, 50)


def test_instances_wait_only_within_the_same_collective() -> None:
    first, second = collective((10, 60), (20, 60)), collective((90, 95), flow=8)
    both = first._replace(slices=[*first.slices, *second.slices])
    assert split(both) == [(10, 40), (0, 40), (0, 5)]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9))
def test_waiting_and_transfer_add_up_to_the_whole_and_the_last_never_waits(
    calls: list[tuple[int, int]],
) -> None:
    timeline = collective(*((begin, begin + duration) for begin, duration in calls))
    parts = split(timeline)
    assert [sum(part) for part in parts] == [duration for _, duration in calls]
    assert all(part.waiting >= 0 and part.transfer >= 0 for part in parts)
    last = max(range(len(calls)), key=lambda track: calls[track][0])
    assert parts[last].waiting == 0
