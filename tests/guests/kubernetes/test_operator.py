"""The operator on a cluster in memory: the states of a job, from its creation to its end."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from podwright.errors import Denied, NoCapacity
from podwright.guests.kubernetes.partitions import _job_partitions
from podwright.wire import ReadyState
from tests.guests.kubernetes.conftest import World

WORKERS: dict[str, Any] = {
    "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
}


def job(ipus: int = 4, instances: int = 1, **more: Any) -> dict[str, Any]:
    """Return a spec."""
    return {
        "ipusPerJobInstance": str(ipus),
        "jobInstances": instances,
        "workers": WORKERS,
    } | more


async def test_a_job_runs_and_gives_back(world: World) -> None:
    world.kube.create(job(instances=2))
    await world.pods("job-worker-0", "job-worker-1")
    assert len(world.controller.made) == 2
    assert {info.size for info in world.controller.made.values()} == {4}
    for name in ("job-worker-0", "job-worker-1"):
        world.kube.run(name)
    await world.becomes("Running")
    assert world.status()["currentReplicas"] == 2
    for name in ("job-worker-0", "job-worker-1"):
        world.kube.end(name)
    await world.becomes("Completed")
    assert world.status()["lastMessage"] == "All instances done"
    await world.until(lambda: not world.controller.made, "given back")
    assert world.kube.names() == ["job-worker-0", "job-worker-1"]  # their logs can be read
    world.kube.delete()
    await world.until(lambda: not world.kube.names("IPUJob"), "gone")
    writes = [one for one in world.kube.writes if not one.startswith(("create", "delete"))]
    assert len(writes) <= 8, writes


def ranked(ipus: int, name: str) -> dict[str, Any]:
    """Return the spec of a job with a PriorityClass."""
    template = {"spec": {**WORKERS["template"]["spec"], "priorityClassName": name}}
    return job(ipus, workers={"template": template})


async def test_the_job_of_the_highest_priority_comes_first(world: World) -> None:
    world.kube.priority("low", -5)
    world.kube.priority("high", 100)
    world.kube.priority("usual", 10, default=True)
    line = world.operator.partitions.line if world.operator else None
    assert line is not None
    await world.until(lambda: line.priorities.get("high") == 100, "the classes")
    world.kube.create(job(16), "first")
    await world.pods("first-worker-0")
    for name, spec in (("a", ranked(16, "low")), ("b", job(16)), ("c", ranked(16, "high"))):
        world.kube.create(spec, name)
    await world.until(lambda: len(line.waiting) == 3, "all three wait")
    assert [queued.key.name for queued in line.ranked()] == ["c", "b", "a"]
    await world.until(
        lambda: [job.priority for job in world.controller.waiting] == [100, 10, -5], "the report"
    )
    for name, following in (("first", "c"), ("c", "b"), ("b", "a")):
        world.kube.run(f"{name}-worker-0")
        world.kube.end(f"{name}-worker-0")
        await world.until(partial(_has_pod, world, following), following)


def _has_pod(world: World, name: str) -> bool:
    return f"{name}-worker-0" in world.kube.names()


async def test_without_the_right_to_read_classes_all_jobs_are_equal(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> dict[str, int]:
        raise Denied("priorityclasses is forbidden")

    world.kube.priority("high", 100)
    line = world.operator.partitions.line if world.operator else None
    assert line is not None
    await world.until(lambda: "high" in line.priorities, "the classes")
    monkeypatch.setattr(world.kube, "priorities", refused)
    await world.until(lambda: line.priorities == {"": 0}, "the refusal")
    world.kube.create(ranked(16, "high"))
    await world.pods("job-worker-0")
    refusals = [r for r in caplog.records if "priorityClassName" in r.getMessage()]
    assert len(refusals) == 1
    assert "podwright kubernetes manifests" in refusals[0].getMessage()


async def test_each_change_is_an_event(world: World) -> None:
    uid = world.kube.create(job(restartPolicy={"type": "OnFailure", "backOffLimit": 1}))
    for _ in range(2):
        await world.pods("job-worker-0")
        world.kube.run("job-worker-0")
        await world.becomes("Running")
        world.kube.end("job-worker-0", 3)
        await world.until(lambda: world.status()["launcherStatus"] != "Running", "its end")
    await world.becomes("Failed")

    def story() -> list[tuple[str, str]]:
        events = world.kube.events.values()
        assert {event["involvedObject"]["uid"] for event in events} == {uid}
        return [(event["type"], event["reason"]) for event in events]

    begun = [("Normal", "Queued"), ("Normal", "PartitionReady"), ("Normal", "Running")]
    ended = [("Warning", "Restarting"), ("Normal", "Running"), ("Warning", "Failed")]
    await world.until(lambda: ended[-1] in story(), "the last one")
    assert [entry for entry in story() if entry in begun[:2]] == begun[:2]
    assert [entry for entry in story() if entry not in begun[:2]] == [begun[2], *ended]


async def test_pods_are_looked_for_once_there_may_be_some(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server goes through all pods of a namespace to find those of one job."""
    asked: list[str] = []
    pods = world.kube.pods

    async def counted(namespace: str, uid: str) -> Any:
        asked.append(str(world.status().get("startTime")))
        return await pods(namespace, uid)

    monkeypatch.setattr(world.kube, "pods", counted)
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    assert "None" not in asked
    assert asked


async def test_pods_know_their_partition(world: World) -> None:
    world.kube.create(job(), namespace="team")
    await world.pods("job-worker-0")
    (name,) = world.controller.made
    pod = world.kube.objects["Pod", "team", "job-worker-0"]
    env = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert env == {
        "IPUOF_VIPU_API_PARTITION_ID": name,
        "IPUOF_VIPU_API_HOST": "vipu",
        "IPUOF_VIPU_API_PORT": "8090",
        "PODWRIGHT_SIMULATED": "1",
        "PODWRIGHT_JOB_WORKER": "job-worker-0",
    }
    uid = world.kube.objects["IPUJob", "team", "job"]["metadata"]["uid"]
    words = f"team/job, kubernetes lab, uid {uid}, instance 0"
    assert world.controller.made[name].job == words


async def test_a_pod_of_somebody_else_with_a_jobs_name_is_named(world: World) -> None:
    """Such a pod may be one that Graphcore's operator left."""
    meta = {"name": "job-worker-0", "namespace": "team", "uid": "other", "labels": {}}
    world.kube._put_object(
        ("Pod", "team", "job-worker-0"), {"metadata": meta, "status": {}}, "ADDED"
    )
    world.kube.create(job(), namespace="team")
    words = "another pod has the name job-worker-0: kubectl -n team delete pod job-worker-0"
    await world.until(lambda: world.status().get("lastMessage") == words, "what is in the way")
    writes = len(world.kube.writes)
    await world.kube.delete_pod("team", "job-worker-0", "other")
    jobs = world.operator.jobs  # type: ignore[union-attr]
    jobs.poke(next(iter(jobs._keys.values())))
    await world.until(lambda: world.status()["lastMessage"] == "its pods are starting", "pods")
    pod = world.kube.objects["Pod", "team", "job-worker-0"]
    assert pod["metadata"]["uid"] != "other"
    assert writes < 8


async def test_a_job_waits_for_a_full_pod_and_says_why(world: World) -> None:
    world.kube.create(job(16), "first")
    await world.pods("first-worker-0")
    world.kube.create(job(4), "second")
    await world.until(lambda: "0 of 16" in world.status("second").get("lastMessage", ""), "why")
    assert world.status("second")["launcherStatus"] == "Pending"
    assert world.kube.names() == ["first-worker-0"]
    await world.until(lambda: [one.id for one in world.controller.waiting] == ["team/second"])
    world.kube.delete("first")
    await world.pods("second-worker-0")


async def test_a_job_gets_all_its_partitions_or_none(world: World) -> None:
    world.kube.create(job(8), "small")
    await world.pods("small-worker-0")
    world.kube.create(job(8, instances=2), "large")
    await world.until(lambda: world.status("large").get("lastMessage"), "why")
    assert len(world.controller.made) == 1
    world.kube.delete("small")
    await world.pods("large-worker-0", "large-worker-1")


async def test_a_job_that_can_never_start_says_so(world: World) -> None:
    world.kube.create(job(16, instances=2))
    said = "2 partitions of 16 IPUs do not fit into 16 IPUs"
    await world.until(lambda: world.status().get("lastMessage") == said, said)


async def test_no_pod_is_made_before_its_partition(world: World) -> None:
    world.controller.fails = [NoCapacity("somebody was faster")]
    world.kube.create(job())
    await world.until(lambda: "try 1 failed" in world.status().get("lastMessage", ""), "told")
    assert not world.kube.names()
    await world.pods("job-worker-0")  # tried again, later
    assert len(world.controller.made) == 1


async def test_a_restart_resets_the_partition(world: World) -> None:
    world.kube.create(job(restartPolicy={"type": "OnFailure", "backOffLimit": 1}))
    await world.pods("job-worker-0")
    (name,) = world.controller.made
    first = world.kube.objects["Pod", "team", "job-worker-0"]["metadata"]["uid"]
    world.kube.run("job-worker-0")
    world.kube.end("job-worker-0", 3)

    def again() -> bool:
        pod = world.kube.objects.get(("Pod", "team", "job-worker-0"))
        return pod is not None and pod["metadata"]["uid"] != first

    await world.until(again, "made anew")
    assert world.controller.did == [f"create {name}", f"reset {name}"]
    assert world.status()["restartCount"] == 1
    world.kube.end("job-worker-0", 4)
    await world.becomes("Failed")
    assert "exit code 4; it was started anew 1 times" in world.status()["lastMessage"]


@pytest.mark.parametrize(("code", "state"), [(2, "Restarting"), (15, "Restarting"), (3, "Failed")])
async def test_exit_codes_decide_whether_a_job_restarts(
    world: World, code: int, state: str
) -> None:
    policy = {"type": "ExitCode", "exitCodes": "2,10-19"}
    world.kube.create(job(restartPolicy=policy))
    await world.pods("job-worker-0")
    world.kube.end("job-worker-0", code)
    seen = f"status job: {state}"
    await world.until(lambda: any(one.startswith(seen) for one in world.kube.writes), seen)


async def test_a_launcher_comes_last_and_decides(world: World) -> None:
    launcher = {"command": ["poprun", "train"], "env": [{"name": "A", "value": "b"}]}
    world.kube.create(job(workersPerJobInstance="2", launcher=launcher))
    await world.pods("job-worker-0", "job-worker-1")
    (info,) = world.controller.made.values()
    assert info.num_gcds == 2
    world.kube.run("job-worker-0")
    world.kube.run("job-worker-1")
    await world.pods("job-launcher", "job-worker-0", "job-worker-1")
    main = world.kube.objects["Pod", "team", "job-launcher"]["spec"]["containers"][0]
    assert main["command"] == ["poprun", "train"]
    assert {"name": "A", "value": "b"} in main["env"]
    world.kube.run("job-launcher")
    await world.becomes("Running")
    world.kube.end("job-launcher")
    await world.becomes("Completed")
    await world.pods("job-launcher")  # workers that only slept are ended: their IPUs are given back
    await world.until(lambda: not world.controller.made, "given back")


async def test_a_running_job_keeps_its_ipus(world: World) -> None:
    world.kube.quick = False
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    world.kube.delete()
    await world.until(lambda: "delete job-worker-0" in world.kube.writes, "ended")
    await asyncio.sleep(0.2)
    assert world.controller.made  # it may still run
    world.kube.remove_pod("job-worker-0")
    await world.until(lambda: not world.controller.made, "given back")
    await world.until(lambda: not world.kube.names("IPUJob"), "gone")


async def test_the_clean_pod_policy_says_which_pods_stay(world: World) -> None:
    world.kube.create(job(cleanPodPolicy="All"))
    await world.pods("job-worker-0")
    world.kube.end("job-worker-0")
    await world.pods()
    await world.becomes("Completed")


async def test_suspend_gives_back_and_resume_takes_anew(world: World) -> None:
    world.kube.create(job(suspend=True))
    await world.becomes("Suspended")
    assert not world.controller.did
    world.kube.change({"suspend": False})
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    world.kube.change({"suspend": True})
    await world.until(lambda: not world.controller.made, "given back")
    assert not world.kube.names()


async def test_an_interactive_job_ends_by_itself(world: World) -> None:
    world.kube.create(job(interactive={"ttl": 1}))
    await world.pods("job-worker-0")
    command = world.kube.objects["Pod", "team", "job-worker-0"]["spec"]["containers"][0]["command"]
    assert command[0] == "sleep"
    world.kube.run("job-worker-0")
    await world.becomes("Completed")
    await world.until(lambda: not world.controller.made, "given back")


async def test_a_job_is_scaled_up_and_down(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.change({"jobInstances": 3})
    await world.pods("job-worker-0", "job-worker-1", "job-worker-2")
    assert len(world.controller.made) == 3
    world.kube.change({"jobInstances": 1})
    await world.pods("job-worker-0")
    await world.until(lambda: len(world.controller.made) == 1, "two given back")


async def test_a_broken_partition_is_replaced_after_its_pods_end(world: World) -> None:
    world.kube.create(job(restartPolicy={"type": "OnFailure"}))
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    (name,) = world.controller.made
    world.controller.set_state(name, ReadyState.ERROR, "a link is down")
    await world.until(lambda: world.controller.did.count(f"create {name}") == 2, "made anew")
    assert any("a link is down" in one for one in world.kube.writes)
    assert f"reset {name}" not in world.controller.did
    await world.pods("job-worker-0")


async def test_a_partition_that_is_gone_ends_its_job(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    world.controller.made.clear()
    await world.becomes("Failed")
    assert "has lost its partition" in world.status()["lastMessage"]
    await world.pods()


NODE_LOST = "node node0 of job-worker-0 does not answer"


async def test_a_job_goes_on_when_its_node_answers_again(world: World) -> None:
    """All nodes are Unknown for a moment after the API server was away for a minute."""
    world.kube.node("node0")
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    world.kube.node("node0", "Unknown")
    await world.until(lambda: NODE_LOST in world.status()["lastMessage"])
    assert world.status()["launcherStatus"] == "Running"
    world.kube.node("node0")
    await world.until(lambda: world.status()["lastMessage"] == "All instances running")


async def test_a_job_fails_once_kubernetes_ends_the_pods_of_a_dead_node(world: World) -> None:
    world.kube.node("node0")
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    world.kube.node("node0", "Unknown")
    world.kube.evict("job-worker-0")
    await world.becomes("Failed")
    assert NODE_LOST in world.status()["lastMessage"]


async def test_a_pod_that_somebody_deleted_comes_back_on_reset_ipus(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    (name,) = world.controller.made
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    world.kube.remove_pod("job-worker-0")
    await world.pods("job-worker-0")
    assert world.controller.did == [f"create {name}", f"reset {name}"]


async def test_a_job_whose_finalizer_was_taken_away_holds_nothing_for_long(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.delete(forced=True)
    await world.until(lambda: not world.controller.made, "given back")
    assert not world.kube.names()


async def test_graphcores_finalizers_go_with_ours(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    marks = world.kube.objects["IPUJob", "team", "job"]["metadata"]["finalizers"]
    marks.append("ipujob.finalizers.graphcore.ai")
    world.kube.delete()
    await world.until(lambda: not world.kube.names("IPUJob"), "gone")


async def test_a_bad_spec_is_said_and_can_be_mended(world: World) -> None:
    world.kube.create(job() | {"ipusPerJobInstance": "three"})
    await world.becomes("Invalid")
    assert "ipusPerJobInstance is 'three', and no number" in world.status()["lastMessage"]
    world.kube.change({"ipusPerJobInstance": "2"})
    await world.pods("job-worker-0")


async def test_a_controller_that_is_away_changes_nothing(world: World) -> None:
    world.kube.create(job())
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    world.controller.away = True
    world.kube.create(job(), "other")
    await world.until(
        lambda: "does not answer" in world.status("other").get("lastMessage", ""), "told"
    )
    await world.kill()
    world.start()
    await asyncio.sleep(0.3)
    assert world.kube.names() == ["job-worker-0"]
    assert world.status()["launcherStatus"] == "Running"
    world.controller.away = False
    await world.pods("job-worker-0", "other-worker-0")
    assert len(world.controller.did) == 2


async def test_an_operator_that_is_killed_at_any_moment_leaks_nothing(world: World) -> None:
    """Jobs come and go while the operator is cut off at random moments."""
    chance = random.Random(7)
    for number in range(60):
        name = f"j{number}"
        ipus = chance.choice((1, 2, 4, 8))
        policy = chance.choice(("Never", "OnFailure"))
        world.kube.create(job(ipus, chance.choice((1, 1, 2)), restartPolicy={"type": policy}), name)
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        pods = world.kube.names()
        if pods and chance.random() < 0.6:
            chosen = chance.choice(pods)
            if world.kube.objects["Pod", "team", chosen]["status"]["phase"] == "Pending":
                world.kube.run(chosen)
            else:
                world.kube.end(chosen, chance.choice((0, 0, 1)))
        if chance.random() < 0.5:
            world.kube.delete(chance.choice(world.kube.names("IPUJob")))
        if chance.random() < 0.4:
            await world.kill()
            world.start()
        used = [at for name in world.controller.made for at in world.controller.offsets(name)]
        assert len(used) == len(set(used))
    for name in world.kube.names("IPUJob"):
        world.kube.delete(name)
    await world.until(lambda: not world.kube.names("IPUJob"), "all gone")
    await world.until(lambda: not world.controller.made, "nothing is left")
    assert not world.kube.names()


async def test_a_drained_machine_is_said_and_left_at_the_next_start(world: World) -> None:
    world.kube.create(job(restartPolicy={"type": "OnFailure"}))
    await world.pods("job-worker-0")
    world.kube.run("job-worker-0")
    await world.becomes("Running")
    (name,) = world.controller.made
    before = world.controller.offsets(name)
    world.controller.drained = set(before)
    await world.until(lambda: "drained" in world.status()["lastMessage"], "said")
    assert world.status()["launcherStatus"] == "Running"
    assert world.kube.names() == ["job-worker-0"]
    world.kube.end("job-worker-0", 1)
    await world.until(lambda: world.status()["restartCount"] == 1, "anew")
    await world.pods("job-worker-0")
    assert world.controller.offsets(name) != before


async def test_an_unchanged_queue_is_reported_again_before_the_controller_forgets_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_job_partitions, "_REPORT_AGAIN_S", 0.05)
    world.kube.create(job(16), "first")
    await world.pods("first-worker-0")
    world.kube.create(job(16), "second")
    await world.until(lambda: len(world.controller.waiting) == 1, "reported")
    count = len(world.controller.reporters)
    await world.until(lambda: len(world.controller.reporters) > count + 2, "again")
    assert [one.id for one in world.controller.waiting] == ["team/second"]
    assert set(world.controller.reporters) == {"kubernetes lab"}
