"""The account of a launch's time, in shares and in sentences. Pure: a timeline in, values out.

Waiting for devices, configuring the fabric and the end belong to the launch as a whole. Between
them, instances differ, so the shares are their means:

* starting lasts until an instance has joined the others (or, if it never does, until its script
  began);
* waiting for other instances is the part of a collective before its last member has entered it;
* transferring is the rest of the collective;
* all other time until the instance leaves the others or ends is the program's own.

The shares add up to the whole time: nothing is left out and nothing counts twice.

Records are of popdist's collectives alone. A program may also wait within collectives of another
library, which nobody records, so its own time is not called computing. Without any record, the
other two shares are not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from podwright.ground.plural import counted
from podwright.timeline._collective_times import Arrivals, arrivals, split_time
from podwright.timeline._read_back import Timeline, TrackSlice

#: The limit of kinds of collectives that are listed.
_MOST_KINDS = 20


class CollectiveKind(NamedTuple):
    """The collectives of one name and size.

    collectives: their number. calls: the number of calls by single instances, so one collective of
    four instances has four calls. waiting, transfer: seconds, summed over all calls.
    """

    name: str
    size: int
    collectives: int
    calls: int
    waiting: float
    transfer: float


class Slowest(NamedTuple):
    """The instance that made the others wait longest.

    last: the number of collectives that it entered last, of `collectives` with at least two
    instances. waited: seconds that each of the others waited for it, on average, in total.
    """

    rank: int
    last: int
    collectives: int
    waited: float


class InstanceTimes(NamedTuple):
    """How one instance spent its time, in seconds."""

    starting: float
    program: float
    waiting: float
    transfer: float

    def plus(self, other: InstanceTimes) -> InstanceTimes:
        """Return the sums of both."""
        return InstanceTimes(
            *(
                own_seconds + other_seconds
                for own_seconds, other_seconds in zip(self, other, strict=True)
            )
        )


class Account(NamedTuple):
    """How a launch spent its time, in seconds. total: of the launch.

    waiting: for devices. starting, program, waiting_for_instances, transfer: means over the
    instances (InstanceTimes), summed over all starts. starts: how often all instances were started.
    moves: how often the launch was given other devices. by_rank: the times of each instance.
    clock_error: by how many seconds the times of different hosts may differ. left_out: the number
    of records that instances could not send.
    """

    total: float
    waiting: float
    starting: float
    program: float
    waiting_for_instances: float
    transfer: float
    ending: float
    starts: int
    moves: int
    by_rank: dict[int, InstanceTimes]
    kinds: list[CollectiveKind]
    slowest: Slowest | None
    marks: dict[str, int]
    clock_error: float
    left_out: int

    @property
    def knows_collectives(self) -> bool:
        """Whether any collective was recorded. If none was, waiting_for_instances and transfer are
        not known, and 0 says nothing.
        """
        return bool(self.kinds)


class _InstanceSpan(NamedTuple):
    """One start of one instance. times: in seconds; leaving: seconds from leaving to its end."""

    rank: int
    attempt: int
    end: int
    times: InstanceTimes
    leaving: float


def account(timeline: Timeline) -> Account:
    """Return how a launch spent its time."""
    launch_slice = next(iter(timeline.of("launch")), None)
    total_seconds = (launch_slice.end - launch_slice.begin) / 1e9 if launch_slice else 0.0
    waiting_phases = [
        track_slice for track_slice in timeline.of("launch") if track_slice.name == "waiting"
    ]
    waiting_seconds = (
        sum(track_slice.end - track_slice.begin for track_slice in waiting_phases) / 1e9
    )
    arrivals_by_flow = arrivals(timeline)
    instance_spans = _instance_span_list(timeline, arrivals_by_flow)
    spans_by_attempt: dict[int, list[_InstanceSpan]] = defaultdict(list)
    by_rank: dict[int, InstanceTimes] = {}
    for span in instance_spans:
        spans_by_attempt[span.attempt].append(span)
        earlier_times = by_rank.get(span.rank)
        by_rank[span.rank] = earlier_times.plus(span.times) if earlier_times else span.times
    program_seconds = sum(
        _mean(instance_span.times.program for instance_span in attempt_spans)
        for attempt_spans in spans_by_attempt.values()
    )
    waiting_for_instances = sum(
        _mean(instance_span.times.waiting for instance_span in attempt_spans)
        for attempt_spans in spans_by_attempt.values()
    )
    transfer_seconds = sum(
        _mean(instance_span.times.transfer for instance_span in attempt_spans)
        for attempt_spans in spans_by_attempt.values()
    )
    ending_seconds = sum(
        _mean(instance_span.leaving for instance_span in attempt_spans)
        for attempt_spans in spans_by_attempt.values()
    )
    if launch_slice and instance_spans:
        ending_seconds += (launch_slice.end - max(span.end for span in instance_spans)) / 1e9
    clock_errors = [
        timeline_instant.annotations.get("error", 0)
        for timeline_instant in timeline.instants
        if timeline_instant.name == "clock"
    ]
    lost_records = [
        timeline_instant.annotations.get("records", 0)
        for timeline_instant in timeline.instants
        if timeline_instant.name == "left out"
    ]
    mark_counts: dict[str, int] = defaultdict(int)
    for instant in timeline.instants:
        if instant.category == "mark":
            mark_counts[instant.name] += 1
    return Account(
        total=total_seconds,
        waiting=waiting_seconds,
        starting=max(
            total_seconds
            - waiting_seconds
            - program_seconds
            - waiting_for_instances
            - transfer_seconds
            - ending_seconds,
            0.0,
        ),
        program=program_seconds,
        waiting_for_instances=waiting_for_instances,
        transfer=transfer_seconds,
        ending=ending_seconds,
        starts=len(spans_by_attempt),
        moves=sum(track_slice.name == "move" for track_slice in timeline.of("launch")),
        by_rank=dict(sorted(by_rank.items())),
        kinds=_costliest_kinds(timeline, arrivals_by_flow),
        slowest=_slowest_instance(timeline, arrivals_by_flow),
        marks=dict(mark_counts),
        clock_error=max(clock_errors, default=0) / 1e9,
        left_out=sum(lost_records),
    )


def _instance_span_list(
    timeline: Timeline, arrivals_by_flow: dict[int, Arrivals]
) -> list[_InstanceSpan]:
    slices_by_track: dict[int, list[TrackSlice]] = defaultdict(list)
    for track_slice in timeline.slices:
        if track_slice.depth == 1:
            slices_by_track[track_slice.track].append(track_slice)
    instance_spans = []
    for instance_slice in timeline.of("instance"):
        inner_slices = [
            track_slice
            for track_slice in slices_by_track[instance_slice.track]
            if instance_slice.begin <= track_slice.begin and track_slice.end <= instance_slice.end
        ]
        joined_at = max(
            (inner_slice.end for inner_slice in inner_slices if inner_slice.category == "join"),
            default=instance_slice.begin,
        )
        left_at = min(
            (inner_slice.begin for inner_slice in inner_slices if inner_slice.category == "leave"),
            default=instance_slice.end,
        )
        collective_times = [
            split_time(inner_slice, arrivals_by_flow)
            for inner_slice in inner_slices
            if inner_slice.category == "collective"
        ]
        waiting_ns = sum(collective_time.waiting for collective_time in collective_times)
        transfer_ns = sum(collective_time.transfer for collective_time in collective_times)
        starting_ns, program_ns = (
            joined_at - instance_slice.begin,
            left_at - joined_at - waiting_ns - transfer_ns,
        )
        times_ns = (starting_ns, program_ns, waiting_ns, transfer_ns)
        instance_spans.append(
            _InstanceSpan(
                rank=instance_slice.annotations.get("rank", 0),
                attempt=instance_slice.annotations.get("attempt", 1),
                end=instance_slice.end,
                times=InstanceTimes(*(nanoseconds / 1e9 for nanoseconds in times_ns)),
                leaving=(instance_slice.end - left_at) / 1e9,
            )
        )
    return instance_spans


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _costliest_kinds(
    timeline: Timeline, arrivals_by_flow: dict[int, Arrivals]
) -> list[CollectiveKind]:
    """Return the kinds on which most time was spent, the most expensive first."""
    calls_by_kind: dict[tuple[str, int], list[TrackSlice]] = defaultdict(list)
    for call_slice in timeline.of("collective"):
        calls_by_kind[call_slice.name, call_slice.annotations.get("bytes", 0)].append(call_slice)
    collective_kinds = []
    for (collective_name, byte_count), call_slices in calls_by_kind.items():
        collective_times = [split_time(call_slice, arrivals_by_flow) for call_slice in call_slices]
        flow_ids = {flow_id for call_slice in call_slices for flow_id in call_slice.flows}
        collective_kinds.append(
            CollectiveKind(
                name=collective_name,
                size=byte_count,
                collectives=len(flow_ids) + sum(not call_slice.flows for call_slice in call_slices),
                calls=len(call_slices),
                waiting=sum(collective_time.waiting for collective_time in collective_times) / 1e9,
                transfer=sum(collective_time.transfer for collective_time in collective_times)
                / 1e9,
            )
        )
    return sorted(collective_kinds, key=lambda kind: -kind.waiting - kind.transfer)[:_MOST_KINDS]


def _slowest_instance(timeline: Timeline, arrivals_by_flow: dict[int, Arrivals]) -> Slowest | None:
    """Return the instance that came last, and how long the others waited, over all collectives."""
    rank_of_track = {
        instance_slice.track: instance_slice.annotations.get("rank", 0)
        for instance_slice in timeline.of("instance")
    }
    last_counts: dict[int, int] = defaultdict(int)
    waited_ns: dict[int, float] = defaultdict(float)
    shared_collectives = [
        collective_arrivals
        for collective_arrivals in arrivals_by_flow.values()
        if len(collective_arrivals.members) > 1
    ]
    for collective_arrivals in shared_collectives:
        rank = rank_of_track.get(collective_arrivals.members[-1][1], 0)
        last_counts[rank] += 1
        waited_ns[rank] += _mean(
            collective_arrivals.latest - arrival_time
            for arrival_time, _ in collective_arrivals.members[:-1]
        )
    if not waited_ns:
        return None
    slowest_rank = max(waited_ns, key=lambda rank: waited_ns[rank])
    return Slowest(
        slowest_rank,
        last_counts[slowest_rank],
        len(shared_collectives),
        waited_ns[slowest_rank] / 1e9,
    )


def in_sentences(launch_account: Account) -> list[str]:
    """Return how the time was spent, one sentence for each fact."""
    total_seconds = launch_account.total or 1.0
    named_seconds = [
        ("waiting for devices", launch_account.waiting),
        ("starting", launch_account.starting),
        ("in the program", launch_account.program),
    ]
    if launch_account.knows_collectives:
        named_seconds += [
            ("waiting in popdist's collectives", launch_account.waiting_for_instances),
            ("transferring in them", launch_account.transfer),
        ]
    named_seconds.append(("ending", launch_account.ending))
    shares_text = ", ".join(
        f"{seconds / total_seconds:.0%} {name}" for name, seconds in named_seconds
    )
    sentences = [f"It took {seconds_text(launch_account.total)}: {shares_text}."]
    if launch_account.by_rank:
        own_text = "it computed, or was in collectives of another library"
        unknown_text = (
            f"What it did in the program is not known: {own_text}."
            if launch_account.knows_collectives
            else "How long instances waited for each other is not known: none made a collective by "
            f"popdist. In the program {own_text}."
        )
        sentences.append(unknown_text)
    if launch_account.starts > 1:
        moved_text = (
            f", {launch_account.moves} of them after a move" if launch_account.moves else ""
        )
        sentences.append(f"All instances were started {launch_account.starts} times{moved_text}.")
    if launch_account.slowest:
        slowest = launch_account.slowest
        sentences.append(
            f"Instance {slowest.rank} was the slowest: it came last to {slowest.last} of "
            f"{slowest.collectives} collectives, and the others waited "
            f"{seconds_text(slowest.waited)} for it."
        )
    kinds_with_transfer = [kind for kind in launch_account.kinds if kind.transfer]
    if kinds_with_transfer:
        kind = max(kinds_with_transfer, key=lambda kind: kind.transfer)
        sentences.append(
            f"Most of the transfer was {kind.name} of {size_text(kind.size)}: "
            f"{seconds_text(kind.transfer / kind.calls)} each."
        )
    if launch_account.clock_error:
        sentences.append(
            f"Times of different hosts may differ by {seconds_text(launch_account.clock_error)}, "
            "since their clocks do."
        )
    if launch_account.left_out:
        sentences.append(
            f"{counted(launch_account.left_out, 'record', ('was', 'were'))} left out: "
            "there were too many."
        )
    return sentences


def instance_times_texts(launch_account: Account, times: InstanceTimes) -> list[str]:
    """Return how an instance spent its time, for people."""
    known_times = times if launch_account.knows_collectives else times[:2]
    time_texts = [seconds_text(seconds) for seconds in known_times]
    return time_texts + ["not known"] * (len(times) - len(time_texts))


def seconds_text(seconds: float) -> str:
    """Return a time for people."""
    if seconds >= 120:
        minutes, remaining_seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {remaining_seconds} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def size_text(byte_count: int) -> str:
    """Return a number of bytes for people."""
    for unit_bytes, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if byte_count >= unit_bytes:
            return f"{byte_count / unit_bytes:.4g} {name}"
    return f"{byte_count} bytes"
