"""The operator is removed: everything is given back, and nothing keeps a job from being deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from podwright.cli.podwright import main
from podwright.errors import Denied, NotFound
from podwright.guests.kubernetes import (
    DevicePlace,
    Partitions,
    Removal,
    VipuSite,
    alone,
    give_all_back,
)
from tests.guests.kubernetes.conftest import World
from tests.guests.kubernetes.test_operator import job

GRAPHCORES = "ipujob.finalizers.graphcore.ai"
OTHERS = "example.org/audit"


def removal(world: World, told: Callable[[str], None], *, controllers: bool = True) -> Removal:
    place = DevicePlace(VipuSite("vipu", 8090), world.controller, "c")
    partitions = Partitions("lab", [place] if controllers else [], time.monotonic)
    return Removal(world.kube, partitions, told)


async def test_removal_ends_what_runs_and_leaves_jobs_without_finalizers(world: World) -> None:
    world.kube.quick = False
    world.kube.create(job(instances=2), "runs")
    await world.pods("runs-worker-0", "runs-worker-1")
    world.kube.run("runs-worker-0")
    await world.kill()
    marks = world.kube.objects["IPUJob", "team", "runs"]["metadata"]["finalizers"]
    marks += [GRAPHCORES, OTHERS]
    lines: asyncio.Queue[str] = asyncio.Queue()
    ends = asyncio.create_task(removal(world, lines.put_nowait).run(pause_s=0.01))
    assert await lines.get() == "job team/runs: waits for the end of runs-worker-0 on node0"
    assert len(world.controller.made) == 2  # what may run keeps its devices
    world.kube.remove_pod("runs-worker-0")
    assert await ends == 1
    assert await lines.get() == "job team/runs: nothing is left"
    assert not world.controller.made
    left = world.kube.objects["IPUJob", "team", "runs"]
    assert left["metadata"]["finalizers"] == [OTHERS]
    assert left["status"]["lastMessage"] == "its operator was removed"
    world.start()  # another one starts it anew
    await world.pods("runs-worker-0", "runs-worker-1")


async def test_a_job_that_was_deleted_goes_at_removal(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    await world.kill()
    world.kube.delete()
    assert await removal(world, print).run(pause_s=0.01) == 1
    assert not world.kube.objects
    assert not world.controller.made


async def test_removal_without_controllers_leaves_partitions(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    await world.kill()
    world.kube.delete()
    assert await removal(world, print, controllers=False).run(pause_s=0.01) == 1
    assert not world.kube.objects
    assert len(world.controller.made) == 1


async def test_only_the_partitions_of_a_lost_cluster_are_given_back(world: World) -> None:
    world.kube.create(job(instances=2))
    await world.pods("job-worker-0", "job-worker-1")
    await world.kill()
    place = DevicePlace(VipuSite("vipu", 8090), world.controller, "c")
    lines: list[str] = []
    others = Partitions("elsewhere", [place], time.monotonic)
    assert await give_all_back(others, lines.append) == 0
    names = sorted(world.controller.made)
    own = Partitions("lab", [place], time.monotonic)
    assert await give_all_back(own, lines.append, "another-team") == 0
    assert sorted(world.controller.made) == names
    assert await give_all_back(own, lines.append) == 1
    assert not world.controller.made
    assert sorted(lines) == [f"job team/job: {name} is given back" for name in names]


def test_which_cluster_is_gone_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kubernetes", "remove", "--controllers", "pod1:8090", "--cluster-gone"]
    assert main(words) == 2
    assert "--cluster-name NAME" in capsys.readouterr().err


class NoLease:
    """A candidate's place whose API server always gives the same answer."""

    def __init__(self, answer: Exception) -> None:
        self.answer = answer

    async def attempt(self) -> bool:
        raise self.answer


@pytest.mark.parametrize(
    "answer",
    [
        NotFound("namespaces podwright not found"),
        Denied("403: unable to create new content in namespace podwright: being terminated"),
    ],
)
async def test_without_its_namespace_no_operator_acts(answer: Exception) -> None:
    assert not await alone(NoLease(answer))


async def test_removal_without_the_right_to_look_is_refused(world: World) -> None:
    with pytest.raises(Denied):
        await alone(NoLease(Denied("403: leases is forbidden")))
