"""The rule that block licences stand on (docs/slurm/mechanisms.md), over random histories.

Slurm may start any jobs whose devices, for each k, add up to no more than `whole(k)` over the
jobs of k devices and more. Whatever their order, each must then find its block at once.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.outer.experiments.pod import Pod

pytestmark = [pytest.mark.outer]

ORDERS = 6
HISTORY = st.lists(st.tuples(st.integers(0, ORDERS), st.booleans()), max_size=60)


def with_history(history: list[tuple[int, bool]]) -> Pod:
    """A pod in which jobs came and half of them went, in the order that the draw says."""
    pod = Pod(1 << ORDERS)
    for job, (order, stays) in enumerate(history):
        pod.take(job, 1 << order)
        if not stays and pod.held:
            pod.release(min(pod.held, key=lambda one: hash((one, job))))
    return pod


@given(HISTORY, st.lists(st.integers(0, ORDERS), max_size=64))
def test_what_the_counts_allow_is_placed_in_whatever_order(
    history: list[tuple[int, bool]], asked: list[int]
) -> None:
    pod = with_history(history)
    left = [pod.whole(k) for k in range(ORDERS + 1)]
    for job, order in enumerate(asked, start=1000):
        size = 1 << order
        if any(left[k] < size for k in range(order + 1)):
            continue  # Slurm would not start it
        left = [count - size if k <= order else count for k, count in enumerate(left)]
        assert pod.take(job, size)


@given(HISTORY, st.integers(0, ORDERS))
def test_what_the_counts_refuse_has_no_place(history: list[tuple[int, bool]], order: int) -> None:
    pod = with_history(history)
    allowed = all(pod.whole(k) >= 1 << order for k in range(order + 1))
    assert pod.take(10_000, 1 << order) == allowed


@given(HISTORY)
def test_ends_before_they_are_told_leave_slurm_on_the_safe_side(
    history: list[tuple[int, bool]],
) -> None:
    """Until it is told, Slurm counts by the old numbers: never more than is whole."""
    pod = with_history(history)
    for job in list(pod.held):
        before = [pod.whole(k) for k in range(ORDERS + 1)]
        pod.release(job)
        assert all(pod.whole(k) >= before[k] for k in range(ORDERS + 1))
