"""Placement against a brute-force reading of its rules, under random requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podwright.fabric import IPU, Cluster, ClusterTopology, LinkDomain, Machine
from podwright.placement import Block, Index, Placement, Refusal, Request
from tests.placement.brute import Brute, devices_of


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to five link domains of 1 to 16 machines, joined in any of the three ways."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 16]), min_size=1, max_size=5))
    numbers = iter(range(1, 100))
    return Cluster(
        name="c",
        family=IPU,
        domains=tuple(
            LinkDomain(f"ild{d}", tuple(Machine(f"ag{next(numbers)}") for _ in range(size)))
            for d, size in enumerate(sizes)
        ),
        topology=draw(st.sampled_from(ClusterTopology)),
        simulated=True,
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Index, Brute]:
    """A cluster with one to three allocations, some machines in none, and its double."""
    cluster = draw(clusters())
    machines = [m.name for domain in cluster.domains for m in domain.machines]
    index = Index(cluster)
    if draw(st.booleans()):
        return index, Brute(cluster, {"c": machines})
    owners = draw(
        st.one_of(
            st.lists(st.integers(0, 3), min_size=len(machines), max_size=len(machines)),
            st.integers(0, len(machines)).map(lambda cut: [0] * cut + [1] * (len(machines) - cut)),
        )
    )
    allocations: dict[str, list[str]] = {}
    for machine, owner in zip(machines, owners, strict=True):
        if owner < 3:
            allocations.setdefault(f"a{owner}", []).append(machine)
    if not allocations:
        allocations = {"a0": machines[:1]}
    for name, members in allocations.items():
        index.define_allocation(name, members)
    return index, Brute(cluster, allocations)


SIZES = st.one_of(
    st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320]), st.integers(-1, 200)
)


@st.composite
def requests(draw: st.DrawFn, brute: Brute) -> Request:
    names = [None, *brute.allocations, "nobody"]
    name = draw(st.sampled_from(names))
    size = draw(SIZES)
    gcds = draw(st.one_of(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 8]), st.integers(-1, 65)))
    domains = draw(st.sampled_from([None, None, None, 1, 2, 2, 3, 4, 0]))
    blocks = None
    if draw(st.integers(0, 4)) == 0:
        d = st.integers(0, len(brute.cluster.domains))
        part = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 64]))
        offset = draw(st.integers(0, 15)) * draw(st.sampled_from([part, part, 1]))
        at = draw(st.lists(d, min_size=1, max_size=3))
        blocks = tuple(Block(domain, offset, part) for domain in at)
        size = draw(st.sampled_from([0, part * len(at), size]))
    return Request(size, name, domains, gcds, blocks)


def state(index: Index) -> object:
    names = [None, *index.allocations]
    sizes = (1, 2, 4, 8, 16, 32, 64)
    free = [index.free(name) for name in names]
    return free, [index.plan(Request(size, name)) for name in names for size in sizes]


def check_placed(brute: Brute, request: Request, placed: Placement) -> None:
    assert placed.blocks in brute.choices(request)
    devices = devices_of(placed.blocks)
    assert set(devices) <= brute.usable(placed.allocation)
    assert request.allocation in (None, placed.allocation)
    assert devices_of(placed.gcds) == devices
    assert len(placed.gcds) == request.gcds
    each = len(devices) // request.gcds
    assert all(gcd.size == each and gcd.offset % each == 0 for gcd in placed.gcds)
    if len(devices) <= 2:
        assert len({brute.cluster.machine_of(*device) for device in devices}) == 1


def check_refused(index: Index, brute: Brute, request: Request, refusal: Refusal) -> None:
    assert not brute.choices(request), "refused although a legal shape is free"
    assert refusal.never == (not brute.choices(request, ever=True))
    assert refusal.rule
    assert not refusal.rule.endswith(".")
    if request.allocation in (None, *brute.allocations):
        assert refusal.free == index.free(request.allocation)
    fits = [
        size
        for size in (1, 2, 4, 8, 16, 32, *range(64, brute.cluster.size + 1, 64))
        if brute.choices(Request(size, request.allocation, request.domains, request.gcds))
    ]
    assert refusal.largest == max(fits, default=0)
    for size in refusal.nearest_sizes:
        alike = Request(size, request.allocation, request.domains, request.gcds)
        assert brute.choices(alike, ever=True)


@given(st.data())
def test_agrees_with_brute_force(data: st.DataObject) -> None:
    index, brute = data.draw(worlds())
    machines = [m.name for domain in brute.cluster.domains for m in domain.machines]
    live: list[Placement] = []
    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["place", "place", "place", "release", "drain", "resume"]))
        if step == "place":
            request = data.draw(requests(brute))
            before = state(index)
            planned = index.plan(request)
            assert state(index) == before, "plan changed the index"
            answer = index.allocate(request)
            assert answer == planned
            if isinstance(answer, Refusal):
                check_refused(index, brute, request, answer)
                assert state(index) == before
            else:
                check_placed(brute, request, answer)
                brute.allocated |= set(devices_of(answer.blocks))
                live.append(answer)
        elif step == "release" and live:
            gone = live.pop(data.draw(st.integers(0, len(live) - 1)))
            index.release(gone)
            brute.allocated -= set(devices_of(gone.blocks))
        else:
            machine = data.draw(st.sampled_from(machines))
            (index.resume if step == "resume" else index.drain)(machine)
            brute.set_up(machine, up=step == "resume")
        for name in brute.allocations:
            assert index.free(name) == len(brute.usable(name))


@given(st.data())
def test_release_restores_exactly(data: st.DataObject) -> None:
    index, brute = data.draw(worlds())
    before = state(index)
    live = []
    for _ in range(data.draw(st.integers(1, 15))):
        answer = index.allocate(data.draw(requests(brute)))
        if isinstance(answer, Placement):
            live.append(answer)
    for gone in data.draw(st.permutations(live)):
        index.release(gone)
    assert state(index) == before


@given(st.data())
def test_taking_a_record_back_gives_the_same_index(data: st.DataObject) -> None:
    index, brute = data.draw(worlds())
    double = Index(brute.cluster)
    if "c" not in brute.allocations:
        for name in index.allocations:
            members = {brute.cluster.machine_of(*at).name for at in brute.allocations[name]}
            double.define_allocation(name, sorted(members))
    live = []
    for _ in range(data.draw(st.integers(1, 15))):
        answer = index.allocate(data.draw(requests(brute)))
        if isinstance(answer, Placement):
            live.append(answer)
    machine = brute.cluster.domains[0].machines[0].name
    index.drain(machine)
    double.drain(machine)  # what is on a drained machine stays there over a restart
    for placement in data.draw(st.permutations(live)):
        double.take(Placement(placement.allocation, placement.blocks, placement.gcds))
    assert state(double) == state(index)
