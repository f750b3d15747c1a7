"""The limits of visitors, in total and of each caller, and which visitor makes room for another."""

from __future__ import annotations

import pytest

from podwright.http import TooManyVisitors, Visitors


class Guest:
    """A visitor."""

    def __init__(self, silent_since: float) -> None:
        self.silent_since = silent_since
        self.left = 0

    def leave(self) -> None:
        self.left += 1


def door(now: float = 100.0) -> Visitors:
    return Visitors(4, 2, patience=5.0, clock=lambda: now)


def test_the_visitor_that_was_silent_longest_makes_room() -> None:
    visitors = door()
    early, late = Guest(10.0), Guest(20.0)
    visitors.enter(late, "a")
    visitors.enter(early, "a")
    visitors.enter(Guest(100.0), "a")
    assert (early.left, late.left, len(visitors), visitors.evicted) == (1, 0, 2, 1)


def test_a_busy_visitor_makes_no_room() -> None:
    visitors = door()
    for _ in range(2):
        visitors.enter(Guest(float("inf")), "a")
    with pytest.raises(TooManyVisitors, match="more than 2 connections of one caller"):
        visitors.enter(Guest(100.0), "a")
    assert (len(visitors), visitors.refused) == (2, 1)
    visitors.enter(Guest(100.0), "b")


def test_one_address_does_not_push_out_another_within_its_own_limit() -> None:
    visitors = door()
    theirs = Guest(1.0)
    visitors.enter(theirs, "b")
    for _ in range(50):
        visitors.enter(Guest(10.0), "a")
    assert (theirs.left, len(visitors)) == (0, 3)


def test_when_all_places_are_taken_any_silent_visitor_goes() -> None:
    visitors = door()
    guests = [Guest(50.0 + number) for number in range(4)]
    for number, guest in enumerate(guests):
        visitors.enter(guest, number)
    visitors.enter(Guest(100.0), "new")
    assert [guest.left for guest in guests] == [1, 0, 0, 0]


def test_a_visitor_that_leaves_twice_is_counted_out_once() -> None:
    visitors = door()
    guest = Guest(1.0)
    visitors.enter(guest, "a")
    visitors.gone(guest)
    visitors.gone(guest)
    assert len(visitors) == 0
    for _ in range(2):
        visitors.enter(Guest(float("inf")), "a")


def test_a_sweep_sends_silent_visitors_away() -> None:
    visitors = door()
    silent, busy = Guest(10.0), Guest(float("inf"))
    visitors.enter(silent, "a")
    visitors.enter(busy, "b")
    visitors.sweep(30.0)
    assert (silent.left, busy.left, list(visitors)) == (1, 0, [busy])
