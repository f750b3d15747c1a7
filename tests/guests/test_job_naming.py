"""Which job a guest names: it keeps its word, and neither the old nor the urgent wait for ever."""

from __future__ import annotations

from podwright.guests.shared import JobNaming, Waits

PATIENCE = 60.0


def job(name: str, *, priority: int = 0, since: float | None = None, pod: str = "pod") -> Waits:
    return Waits(priority, name, {pod: [2]}, name=name, since=since)


class Played:
    """A guest's queue, looked at by a test."""

    def __init__(self, *waiting: Waits) -> None:
        self.naming, self.waiting = JobNaming(PATIENCE), list(waiting)

    def look(self, now: float) -> tuple[str, bool]:
        self.naming.update(self.waiting, now)
        named = self.naming.named.get("pod")
        return (named.job.title, named.is_due) if named else ("", False)

    def start(self, name: str) -> None:
        """The job gets its place and starts there."""
        self.naming.hear("pod", has_place=True, offered=True)
        self.waiting = [waiting for waiting in self.waiting if waiting.title != name]


def test_the_first_in_order_is_named_until_one_is_due() -> None:
    guest = Played(job("old"))
    assert guest.look(0.0) == ("old", False)
    guest.waiting.append(job("urgent", priority=9))
    assert guest.look(59.0) == ("urgent", False)
    assert guest.look(60.0) == ("old", True)


def test_a_due_job_stays_named_whatever_comes_before_it() -> None:
    guest = Played(job("old", since=0.0))
    assert guest.look(60.0) == ("old", True)
    guest.waiting.append(job("urgent", priority=9, since=0.0))
    assert guest.look(200.0) == ("old", True)


def test_a_job_with_a_place_stays_named_although_it_is_not_due() -> None:
    guest = Played(job("first"))
    guest.look(0.0)
    guest.naming.hear("pod", has_place=True, offered=False)
    guest.waiting.append(job("urgent", priority=9, since=-100.0))
    assert guest.look(1.0) == ("first", False)


def test_after_a_start_that_passed_an_older_job_the_oldest_is_next() -> None:
    guest = Played(job("old", since=0.0), job("u1", priority=9, since=10.0))
    assert guest.look(100.0) == ("u1", True)
    guest.start("u1")
    guest.waiting.append(job("u2", priority=9, since=20.0))
    assert guest.look(110.0)[1] is False, "the guest has just had a place"
    assert guest.look(170.0) == ("old", True)
    guest.start("old")
    guest.look(180.0)
    assert guest.look(240.0) == ("u2", True)


def test_a_turn_at_free_devices_puts_nobody_back() -> None:
    guest = Played(job("old", since=0.0), job("urgent", priority=9, since=40.0))
    assert guest.look(50.0) == ("urgent", False)
    guest.start("urgent")
    assert guest.look(60.0) == ("old", True)


def test_who_leaves_an_offer_untaken_waits_twice_as_long_for_the_next() -> None:
    guest = Played(job("old", since=0.0), job("other", since=0.0))
    guest.look(60.0)
    guest.naming.hear("pod", has_place=True, offered=True)
    guest.naming.hear("pod", has_place=False, offered=False)
    assert guest.look(61.0) == ("other", True)
    guest.waiting.pop()
    assert guest.look(61.0 + 119.0) == ("old", False)
    assert guest.look(61.0 + 120.0) == ("old", True)


def test_a_job_of_several_pods_is_named_in_all_of_them_or_in_none() -> None:
    both = Waits(0, "both", {"pod": [2], "other": [2]}, name="both", since=0.0)
    guest = Played(both, job("first", priority=9, since=0.0))
    guest.look(60.0)
    assert {pod: named.job.title for pod, named in guest.naming.named.items()} == {"pod": "first"}
    guest.start("first")
    guest.look(61.0)
    assert set(guest.naming.named) == {"pod", "other"}


def test_nothing_changes_for_a_pod_that_moves_empty() -> None:
    guest = Played(job("old", since=0.0))
    guest.look(60.0)
    guest.naming.update([], 61.0, busy_pods={"pod"})
    assert guest.naming.named["pod"].is_due


def test_without_patience_no_job_is_ever_due() -> None:
    naming = JobNaming(0.0)
    naming.update([job("old", since=0.0)], 1e6)
    assert not naming.named["pod"].is_due
