"""The operator's figures and probes: what it counts, and whether it hears changes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from podwright.errors import Unavailable
from podwright.guests.kubernetes.cluster._kube_api import KubeApi
from podwright.guests.kubernetes.cluster._kube_watch import KindWatch
from podwright.guests.kubernetes.operator._operator_metrics import (
    FAILING_DEAF_SECONDS,
    OperatorCounts,
    deaf,
    figures,
)
from podwright.guests.kubernetes.operator._operator_process import _ProbesAndMetrics
from podwright.http import HttpRequest, MetricsFront, Reply
from tests.guests.kubernetes.conftest import World
from tests.guests.kubernetes.test_operator import job


def watch(kind: str, deaf_since: float | None) -> KindWatch:
    made = KindWatch(cast(Any, None), kind, "/", {}, lambda *_: None, lambda: 0.0)
    made.deaf_since = deaf_since
    made.problem = "404"
    return made


def test_a_deaf_watch_fails_readiness_at_once_and_liveness_later() -> None:
    watches = [watch("Pod", None), watch("IPUJob", 100.0)]
    assert deaf(watches, 101.0) == "watch of IPUJob: nothing heard for 1 s: 404\n"
    assert deaf(watches, 101.0, FAILING_DEAF_SECONDS) == ""
    assert deaf(watches, 100.0 + FAILING_DEAF_SECONDS, FAILING_DEAF_SECONDS)
    assert deaf(watches[:1], 500.0) == ""
    assert deaf([], 0.0) == ""


def test_figures_of_jobs_watches_and_writes() -> None:
    counts = OperatorCounts(states={"a": "Running", "b": "Pending", "c": "Running"}, waits=2)
    shown = {
        (figure.name, *figure.labels.values()): figure.value
        for figure in figures(counts, [watch("Node", 3.0)], writes=9, acts=True, now=5.0)
    }
    assert shown["operator_jobs", "Running"] == 2
    assert shown["operator_jobs", "Pending"] == 1
    assert shown["operator_watch_deaf_seconds", "Node"] == 2.0
    assert shown["operator_api_writes",] == 9
    assert shown["operator_job_waits",] == 2
    assert shown["operator_acts",] == 1


async def test_probes_answer_by_their_path() -> None:
    problem = ""

    async def nothing() -> list[Any]:
        return []

    front = MetricsFront(nothing, probes={"/readyz": lambda: problem})

    async def ask(path: str) -> tuple[int, bytes]:
        reply: Reply = await front._answer(HttpRequest("GET", path, "", [], b"", None, "127.0.0.1"))
        assert isinstance(reply.body, bytes)
        return reply.status, reply.body

    assert await ask("/readyz") == (200, b"ok\n")
    problem = "watch of Pod: nothing heard\n"
    assert await ask("/readyz") == (503, problem.encode())
    assert (await ask("/livez"))[0] == 404


async def test_an_operator_that_the_api_server_does_not_answer_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may wait for the lease, and then it has no watch yet."""
    kube = KubeApi(cast(Any, None))
    front = _ProbesAndMetrics(kube, None)._front

    async def ready() -> int:
        request = HttpRequest("GET", "/readyz", "", [], b"", None, "127.0.0.1")
        return (await front._answer(request)).status

    async def answer(*_: object) -> Any:
        if failure is not None:
            raise failure
        return FakeAnswer()

    monkeypatch.setattr(kube, "_send_request", answer)
    assert await ready() == 503
    failure: Exception | None = None
    await kube.cluster_uid()
    assert await ready() == 200
    failure = TimeoutError()
    with pytest.raises(Unavailable):
        await kube.cluster_uid()
    assert await ready() == 503


class FakeAnswer:
    """Of the API server, to a question for a namespace."""

    status = 200

    async def text(self) -> str:
        return '{"metadata": {"uid": "u"}}'


async def test_the_operator_counts_jobs_and_their_waits(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    assert world.operator is not None
    counts = world.operator.counts
    await world.until(lambda: list(counts.states.values()) == ["Pending"], "pending")
    assert counts.waits == 1
    world.kube.run("job-worker-0")
    await world.until(lambda: list(counts.states.values()) == ["Running"], "running")
    assert counts.reconciles > 0


async def test_conditions_tell_a_jobs_story_and_when(world: World) -> None:
    world.kube.create(job(16), "first")
    await world.pods("first-worker-0")
    world.kube.create(job(16), "second")
    await world.until(lambda: conditions(world, "second").get("Queued") == "True", "queued")
    world.kube.run("first-worker-0")
    world.kube.end("first-worker-0")
    await world.becomes("Completed", "first")
    assert conditions(world, "first")["Succeeded"] == "True"
    assert conditions(world, "first")["PartitionReady"] == "False"
    await world.until(lambda: conditions(world, "second").get("PartitionReady") == "True", "ready")
    assert conditions(world, "second")["Queued"] == "False"
    for condition in world.status("second")["conditions"]:
        assert condition["reason"]
        assert condition["lastTransitionTime"]


def conditions(world: World, name: str) -> dict[str, str]:
    rows = world.status(name).get("conditions") or ()
    return {row["type"]: row["status"] for row in rows}
