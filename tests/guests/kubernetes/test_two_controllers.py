"""One controller that is wrong, absent or away holds up no job of another one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from podwright.errors import PodwrightError, Unavailable
from podwright.guests.kubernetes import DevicePlace, Operator, Partitions, VipuSite
from podwright.testing import FakePod
from tests.guests.kubernetes.conftest import World
from tests.guests.kubernetes.test_operator import job

GOOD = VipuSite("good", 8090, "pod", "good")
OTHER = VipuSite("other", 8090, "pod", "other")


class TwoControllers(World):
    """absent: what looking for the second controller raises; None: it is found."""

    def __init__(self) -> None:
        super().__init__()
        self.second = FakePod(cluster="c")
        self.absent: PodwrightError | None = None

    def start_both(self) -> None:
        """Start an operator that has yet to find both controllers."""

        async def good_places() -> list[DevicePlace]:
            return [DevicePlace(GOOD, self.controller, "c")]

        async def other_places() -> list[DevicePlace]:
            if self.absent is not None:
                raise self.absent
            return [DevicePlace(OTHER, self.second, "c")]

        self.operator = Operator(
            self.kube,
            Partitions("lab", (), time.monotonic, retry_s=0.05),
            wall=time.time,
            clock=time.monotonic,
            refresh_s=0.02,
            sweep_s=0.1,
            more_places={GOOD.name: good_places, OTHER.name: other_places},
        )
        self._running = asyncio.create_task(self.operator.run())

    def submit(self, spec: dict[str, object], name: str = "job") -> None:
        """Create a job as of now."""
        self.kube.create(spec, name=name)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.kube.objects["IPUJob", "team", name]["metadata"]["creationTimestamp"] = now


@pytest.fixture
async def both() -> AsyncIterator[TwoControllers]:
    made = TwoControllers()
    yield made
    await made.kill()


def on(label: str) -> dict[str, object]:
    """The spec of a job for the nodes of one controller."""
    spec = job()
    template = spec["workers"]["template"]["spec"] | {"nodeSelector": {"pod": label}}
    return spec | {"workers": {"template": {"spec": template}}}


async def test_a_controller_that_never_answers_holds_up_no_job_of_the_other(
    both: TwoControllers,
) -> None:
    both.absent = Unavailable("nobody listens there")
    both.start_both()
    both.submit(job())
    await both.pods("job-worker-0")
    both.submit(on("other"), name="far")
    await both.until(
        lambda: "nobody listens there" in str(both.status("far")), "the job says what is wrong"
    )
    both.absent = None
    await both.pods("far-worker-0", "job-worker-0")
    assert both.second.made


async def test_a_controller_that_goes_away_holds_up_no_job_of_the_other(
    both: TwoControllers,
) -> None:
    both.start_both()
    both.submit(on("other"), name="far")
    await both.pods("far-worker-0")
    both.second.away = True
    both.submit(job())
    await both.pods("far-worker-0", "job-worker-0")


async def test_a_job_of_before_is_left_alone_until_its_controller_was_read(
    both: TwoControllers,
) -> None:
    both.start_both()
    both.submit(on("other"), name="far")
    await both.pods("far-worker-0")
    both.kube.run("far-worker-0")
    await both.becomes("Running", "far")
    await both.kill()
    both.absent = Unavailable("nobody listens there")
    await asyncio.sleep(1.1 - time.time() % 1.0)  # creation times are whole seconds
    both.start_both()
    both.submit(job())
    await both.pods("far-worker-0", "job-worker-0")
    assert both.status("far")["launcherStatus"] == "Running"
    assert both.second.made
    both.absent = None
    both.kube.end("far-worker-0")
    await both.becomes("Completed", "far")


async def test_a_controller_without_answer_does_not_end_the_operator(both: TwoControllers) -> None:
    both.absent = Unavailable("nobody listens there")
    both.start_both()
    assert both._running is not None
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(both._running), 0.2)
    assert not both._running.done()
