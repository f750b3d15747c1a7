"""The decisions of the operator, in virtual time: no cluster, no clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.guests.kubernetes import FINALIZER, Holds, JobPlan, PodView, plan, read_job

NOW = 1_800_000_000.0


def job(status: dict[str, Any] | None = None, deleting: bool = False, **spec: Any) -> Any:
    """Return a job in the form of the API server."""
    meta: dict[str, Any] = {"namespace": "n", "name": "j", "uid": "u", "finalizers": [FINALIZER]}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    said = {
        "ipusPerJobInstance": "2",
        "jobInstances": 1,
        "workers": {"template": {"spec": {"containers": [{"name": "main"}]}}},
    }
    return read_job({"metadata": meta, "spec": said | spec, "status": status or {}})


def worker(number: int = 0, phase: str = "Running", **more: Any) -> PodView:
    """Return a worker of instance `number`."""
    said: dict[str, Any] = {"role": "worker", "instance": number, "attempt": 0} | more
    return PodView(name=f"j-worker-{number}", uid=f"pod{number}", phase=phase, **said)


def holds(instance: int = 0, state: str = "READY", **more: Any) -> dict[int, Holds]:
    """Return a partition."""
    return {instance: Holds(instance=instance, name=f"p{instance}", state=state, **more)}


def said(todo: JobPlan) -> list[str]:
    """Return the actions, by name."""
    return [type(one).__name__ for one in todo.actions]


def test_a_job_takes_its_steps_in_order() -> None:
    assert said(plan(job(), [], {}, NOW)) == ["Want"]
    assert said(plan(job(), [], holds(state="MAKING"), NOW)) == []
    ready = plan(job(), [], holds(), NOW, fresh={0})
    assert said(ready) == ["MakePod"]
    assert ready.status is not None
    assert ready.status["startTime"] == "2027-01-15T08:00:00Z"  # before its pods are made
    over = plan(job(), [worker(phase="Succeeded")], holds(), NOW)
    assert over.status is not None
    assert over.status["launcherStatus"] == "Completed"
    assert said(plan(job(over.status), [worker(phase="Succeeded")], holds(), NOW)) == ["GiveBack"]
    assert plan(job(over.status), [worker(phase="Succeeded")], {}, NOW).lines() == ["nothing to do"]


def test_all_worn_partitions_are_named_but_for_those_that_have_ended() -> None:
    held = {
        i: Holds(instance=i, name=f"p{i}", state="READY", worn=f"p{i} is worn") for i in (0, 1, 2)
    }
    pods = [worker(0), worker(1), worker(2, "Succeeded")]
    begun = {"startTime": "2027-01-15T08:00:00Z"}
    running = plan(job(begun, jobInstances=3), pods, held, NOW)
    assert running.status is not None
    assert running.status["lastMessage"] == "p0 is worn; p1 is worn"


def test_all_partitions_in_error_are_named() -> None:
    held = holds(0, "ERROR", problem="link 3 is down") | holds(1, "ERROR", problem="ag1 is down")
    waiting = plan(job(jobInstances=2), [], held, NOW)
    assert waiting.status is not None
    assert waiting.status["lastMessage"] == "link 3 is down; ag1 is down"


def test_a_plan_is_printed_in_lines() -> None:
    lines = plan(job(), [], holds(), NOW, fresh={0}).lines()
    assert lines == [
        "status: Pending, its pods are starting",
        "MakePod role=worker instance=0 number=0 partition=p0",
    ]


def test_an_interactive_job_says_when_to_look_again() -> None:
    begun = {"startTime": "2027-01-15T08:00:00Z"}
    todo = plan(job(begun, interactive={"ttl": 60}), [worker()], holds(), NOW + 10)
    assert todo.look_at == NOW + 60
    late = plan(job(begun, interactive={"ttl": 60}), [worker()], holds(), NOW + 60)
    assert late.status is not None
    assert late.status["launcherStatus"] == "Completed"


@pytest.mark.parametrize(
    ("kind", "codes", "code", "again"),
    [
        ("Never", "", 1, False),
        ("OnFailure", "", 1, True),
        ("Always", "", 0, True),
        ("OnFailure", "", 0, False),
        ("ExitCode", "3,5-7", 6, True),
        ("ExitCode", "3,5-7", 4, False),
        ("ExitCode", "", 137, True),
        ("ExitCode", "", 1, False),
    ],
)
def test_the_restart_policy_decides_by_the_exit_code(
    kind: str, codes: str, code: int, again: bool
) -> None:
    policy = {"type": kind} | ({"exitCodes": codes} if codes else {})
    ended = worker(phase="Failed" if code else "Succeeded", code=code or None)
    todo = plan(job(restartPolicy=policy), [ended], holds(), NOW)
    assert todo.status is not None
    assert todo.status["restartCount"] == (1 if again else 0)
    assert bool(todo.status.get("completionTime")) is not again


def test_a_job_that_failed_for_no_fault_of_its_own_restarts_under_exit_code() -> None:
    policy = {"type": "ExitCode", "exitCodes": "3"}
    todo = plan(job(restartPolicy=policy), [worker(lost=True, deleting=True)], holds(), NOW)
    assert todo.status is not None
    assert todo.status["restartCount"] == 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"ipusPerJobInstance": "0"}, "ipusPerJobInstance is 0"),
        ({"ipusPerJobInstance": "3"}, "no power of two"),
        ({"ipusPerJobInstance": "-1"}, "no number"),
        ({"workersPerJobInstance": "x"}, "workersPerJobInstance is 'x'"),
        ({"interactive": {"ttl": 0}}, "interactive.ttl"),
        ({"jobInstances": -1}, "jobInstances cannot be negative"),
        ({"launcher": {"command": []}}, "launcher.command"),
        ({"restartPolicy": {"type": "Never", "backOffLimit": -1}}, "backOffLimit"),
        ({"workers": {"replicas": 1}}, "names no container"),
    ],
)
def test_mistakes_beyond_the_schema_stand_in_the_status(spec: dict[str, Any], words: str) -> None:
    todo = plan(job(**spec), [], {}, NOW)
    assert todo.status is not None
    assert todo.status["launcherStatus"] == "Invalid"
    assert words in todo.status["lastMessage"]
    assert not todo.actions


PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])
PODS = st.lists(
    st.builds(
        worker,
        st.integers(0, 3),
        PHASES,
        attempt=st.integers(0, 2),
        deleting=st.booleans(),
        lost=st.booleans(),
        code=st.sampled_from([None, 1, 137]),
    ),
    max_size=4,
    unique_by=lambda pod: pod.name,
)
HELD = st.dictionaries(
    st.integers(0, 3), st.sampled_from(["MAKING", "READY", "ERROR", "GONE"]), max_size=4
)
SPECS = st.fixed_dictionaries(
    {"jobInstances": st.integers(0, 3)},
    optional={
        "suspend": st.booleans(),
        "cleanPodPolicy": st.sampled_from(["None", "All", "Workers"]),
        "restartPolicy": st.sampled_from(
            [{"type": "Always"}, {"type": "OnFailure"}, {"type": "Never"}]
        ),
        "interactive": st.just({"ttl": 5}),
        "launcher": st.just({"command": ["poprun"]}),
    },
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "restartCount": st.integers(0, 2),
        "startTime": st.just("2027-01-15T08:00:00Z"),
        "completionTime": st.just("2027-01-15T08:01:00Z"),
    },
)


@given(SPECS, STATUS, PODS, HELD, st.booleans(), st.sets(st.integers(0, 3)))
def test_whatever_there_is_nothing_runs_without_its_partition(
    spec: dict[str, Any],
    status: dict[str, Any],
    pods: list[PodView],
    states: dict[int, str],
    deleting: bool,
    fresh: set[int],
) -> None:
    held = {i: Holds(instance=i, name=f"p{i}", state=state) for i, state in states.items()}
    todo = plan(job(status, deleting, **spec), pods, held, NOW, fresh=fresh)
    live = {pod.instance for pod in pods if pod.live}
    for one in todo.actions:
        match type(one).__name__, one:
            case "MakePod", made:
                holding = held[made.instance]  # type: ignore[union-attr]
                assert holding.state == "READY"
                assert made.partition == holding.name  # type: ignore[union-attr]
                assert not deleting
                assert not spec.get("suspend")
            case "GiveBack", back:
                assert int(back.name[1:]) not in live  # type: ignore[union-attr]
            case "Reset", reset:
                assert not live & set(reset.instances)  # type: ignore[union-attr]
            case "LetGo", _:
                assert not held
                assert not live
