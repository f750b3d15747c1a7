"""One pod for several users: a stream of small jobs of one, and a large job of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from podwright.wire import RemoveRequest
from tests.outer.lab import poll, release
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.shared_users import (
    ROOM_S,
    SMALL,
    KubernetesUser,
    PeopleUser,
    SlurmUser,
    User,
)

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

CI = {("oldest", "kubernetes", "slurm"), ("newest", "slurm", "kubernetes")}
USERS: dict[str, Callable[[NativeLab], User]] = {
    "slurm": SlurmUser,
    "people": PeopleUser,
    "kubernetes": KubernetesUser,
}
#: The soak ring has all of them; CI one for each release.
CASES = [
    pytest.param(
        name,
        many,
        large,
        marks=() if (name, many, large) in CI else pytest.mark.soak,
    )
    for name in ("oldest", "newest")
    for many in USERS
    for large in USERS
    if many != large
]


@pytest.fixture(scope="module")
def pod(request: pytest.FixtureRequest) -> Iterator[NativeLab]:
    """A POD64 under the Slurm of that release."""
    slurm = release(request.param)
    with NativeLab(nodes=2, cpus=64, release=slurm, configure=["--room-after", str(ROOM_S)]) as lab:
        yield lab


@contextmanager
def emptied(lab: NativeLab) -> Iterator[None]:
    try:
        yield
    finally:
        lab.run("scancel", *(str(job) for job in lab.jobs()))  # whatever their owners are called
        with closing(lab.client()) as client:
            for name in lab.partitions():
                if not name.startswith("slurm_"):
                    client.call("RemovePartition", RemoveRequest(name=name, force=True))
        poll("an empty pod", lambda: not lab.partitions(), seconds=60)


@pytest.mark.parametrize(("pod", "many", "large"), CASES, indirect=["pod"], scope="module")
def test_a_stream_of_small_jobs_starves_no_large_job(pod: NativeLab, many: str, large: str) -> None:
    with emptied(pod), USERS[many](pod) as first, USERS[large](pod) as second:
        first.stream()
        poll("a full pod", lambda: len(pod.partitions()) == 64 // SMALL, seconds=60)
        name = second.large()
        poll(
            "the large job",
            lambda: any(made.startswith(name) for made in pod.partitions()),
            seconds=90,
            every=0.2,
        )
        assert first.waiting(), "the stream was over: nothing was in the large job's way"


#: People have no priorities of their own.
URGENT = [
    pytest.param(
        name,
        many,
        old,
        marks=() if (name, many) == ("newest", "kubernetes") else pytest.mark.soak,
    )
    for name in ("oldest", "newest")
    for many in USERS
    for old in ("slurm", "kubernetes")
    if many != old
]


@pytest.mark.parametrize(("pod", "many", "old"), URGENT, indirect=["pod"], scope="module")
def test_urgent_jobs_do_not_starve_an_old_one_of_the_same_scheduler(
    pod: NativeLab, many: str, old: str
) -> None:
    """A stream of somebody else's jobs fills the pod meanwhile."""
    with emptied(pod), USERS[many](pod) as stream, USERS[old](pod) as user:
        stream.stream()
        poll("a full pod", lambda: len(pod.partitions()) == 64 // SMALL, seconds=60)
        name = user.large()

        def started() -> bool:
            user.urgent()
            return any(made.startswith(name) for made in pod.partitions())

        poll("the old job", started, seconds=120, every=2.0)
