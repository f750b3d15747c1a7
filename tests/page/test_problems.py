"""Problems that need a person: fourteen states, each with its line, and none for a healthy pod."""

from __future__ import annotations

from typing import Any

import pytest

from podwright.page._problems import PROBLEM_FINDERS, STARVES_SECONDS, problems, problems_shown

NOW = 1_790_000_000.0


def healthy() -> dict[str, dict[str, Any]]:
    """A pod of two machines; m2 has partition p1, and a request waits that knows its turn."""
    return {
        "clusters": {"pod": {"machines": ["m1", "m2"], "drained": [], "drains": {}, "down": []}},
        "machines": {name: machine() for name in ("m1", "m2")},
        "devices": {
            f"pod/0/{at}": (
                f"m{at // 4 + 1}", at % 4, *(("IN_USE", "p1") if at > 3 else ("FREE", "")), "",
            )
            for at in range(8)
        },
        "partitions": {"p1": {"state": "ACTIVE", "owner": "alice", "errors": []}},
        "leases": {"l1": lease()},
        "waiters": {"w1": waiter()},
        "events": {},
        "server": {"server": conditions()},
    }  # fmt: skip


def machine(state: str = "UP", reason: str = "") -> dict[str, Any]:
    return {"state": state, "reason": reason, "host": "10.0.0.1", "since": 0}


def lease(**more: Any) -> dict[str, Any]:
    known = {"partition": "p1", "holder": "poprun", "owner": "alice", "state": "HELD"}
    return {**known, "parent": "", "waits_for": [], **more}


def waiter(**more: Any) -> dict[str, Any]:
    known = {"owner": "bob", "state": "WAITING", "needs": "16 devices", "asked": "16 IPUs"}
    return {**known, "since": NOW - 60, "starts": 0, **more}


def conditions(**more: Any) -> dict[str, Any]:
    return {"read_only": "", "standbys": None, "silent_schedulers": {}, "cabling": [], **more}


_DRAINED = {"pod": {"machines": ["m1", "m2"], "drained": ["m2"], "drains": {}, "down": []}}
_DRAINS = {"m1": {"reason": "fan 3 is loud", "who": "ruth", "at": NOW - 99}}
_EMPTY = {"pod": {"machines": ["m1", "m2"], "drained": ["m1"], "drains": _DRAINS, "down": []}}
#: By kind: what is planted in the healthy pod, and what the problem's words and command contain.
PLANTED: dict[str, tuple[dict[str, dict[str, Any]], str, str]] = {
    "silent-agent": (
        {"machines": {"m2": machine("DOWN", "its agent is silent")}},
        "Machine m2 does not answer: its agent is silent; partitions on it: p1 of alice",
        "ssh 10.0.0.1 systemctl restart vipu-agent@m2",
    ),
    "wrong-key": (
        {"machines": {"m2": machine("DOWN", "wrong key: the key is another")}},
        "The agent of machine m2 does not accept this server: wrong key",
        "--agent-key FILE",
    ),
    "drained-used": (
        {"clusters": _DRAINED},
        "Machine m2 is drained and still in use: drained, without a reason; "
        "it waits for p1 of alice to end",
        "vipu get partition p1",
    ),
    "drained-empty": (
        {"clusters": _EMPTY},
        "Machine m1 is drained and empty: 4 devices are out of service: drained by ruth: "
        "fan 3 is loud",
        "vipu-admin resume machine m1",
    ),
    "partition-error": (
        {"partitions": {"p1": {"state": "ERROR", "owner": "alice", "errors": ["m2 went away"]}}},
        "Partition p1 of alice is in error: m2 went away",
        "vipu reset partition p1",
    ),
    "fence": (
        {"leases": {"l1": lease(state="FENCING", waits_for=["host h1"])}},
        "The devices of partition p1 are fenced: poprun ended without word; waits for host h1",
        "vipu get partition p1",
    ),
    "cable": (
        {"server": {"server": conditions(cabling=[["pod", "m2", "port up leads nowhere"]])}},
        "A cable of machine m2 is not where it should be: port up leads nowhere",
        "vipu-admin test cluster pod",
    ),
    "full-disk": (
        {"server": {"server": conditions(read_only="the disk is full")}},
        "The server is read only: nothing can be changed: the disk is full",
        "df -h",
    ),
    "fabric": (
        {"server": {"server": conditions(fabric=["NMX-M", "connection refused"])}},
        "NMX-M cannot be read: nobody sees whether partitions are still isolated: "
        "connection refused",
        "podwright doctor",
    ),
    "no-standby": (
        {"server": {"server": conditions(standbys=0)}},
        "No second server stands by",
        "systemctl start vipu-server",
    ),
    "starving": (
        {"waiters": {"w1": waiter(since=NOW - STARVES_SECONDS)}},
        "Request w1 of bob waits with no end in sight: 16 devices",
        "vipu explain w1",
    ),
    "ill-device": (
        {"devices": {"pod/0/0": ("m1", 0, "DOWN", "", "")}},
        "Device 0 of machine m1 is ill: its driver reports device 0 as not healthy",
        "vipu-admin test cluster pod",
    ),
    "scheduler-away": (
        {"server": {"server": conditions(silent_schedulers={"slurm": int(NOW) - 200})}},
        "The service of scheduler slurm is away",
        "systemctl status podwright-slurm",
    ),
    "refused-machine": (
        {"machines": {"m1": machine("REFUSED", "it has 2 devices")}},
        "The server does not use machine m1: it has 2 devices",
        "vipu-admin list agents",
    ),
}


def test_a_healthy_pod_has_no_problem() -> None:
    assert problems(healthy(), NOW) == {}
    assert problems({}, NOW) == {}
    assert set(PLANTED) == set(PROBLEM_FINDERS)


@pytest.mark.parametrize("kind", PLANTED)
def test_each_planted_state_is_one_problem_with_its_cause_and_command(kind: str) -> None:
    changed, words, command = PLANTED[kind]
    topics = healthy()
    for topic, items in changed.items():
        topics[topic] = {**topics[topic], **items}
    ((key, found),) = problems(topics, NOW).items()
    assert key.startswith(f"{kind}/")
    assert isinstance(found, dict)
    assert f"{found['text']}: {found['cause']}".startswith(words)
    assert command in found["command"]


def test_a_down_machine_is_a_problem_for_callers_who_may_not_see_agents() -> None:
    topics = healthy()
    topics["clusters"]["pod"]["down"] = ["m2"]
    del topics["machines"]
    topics["devices"]["pod/0/4"] = ("m2", 0, "DOWN", "p1", "")
    ((key, found),) = problems(topics, NOW).items()
    assert key == "silent-agent/m2"
    assert found["text"] == "Machine m2 is down"  # type: ignore[index]
    assert "partitions on it: p1 of alice" in found["cause"]  # type: ignore[index]


def test_devices_of_a_silent_machine_are_not_reported_as_ill() -> None:
    topics = healthy()
    topics["clusters"]["pod"]["down"] = ["m2"]
    topics["machines"]["m2"] = machine("DOWN", "its agent is silent")
    for at in range(4, 8):
        topics["devices"][f"pod/0/{at}"] = ("m2", at % 4, "DOWN", "p1", "")
    assert list(problems(topics, NOW)) == ["silent-agent/m2"]


def test_problems_that_stop_everybody_come_before_those_of_one_device() -> None:
    topics = healthy()
    topics["clusters"] = _DRAINED
    topics["server"] = {"server": conditions(standbys=0, read_only="full")}
    topics["waiters"] = {"w1": waiter(since=NOW - 9999)}
    found = [p["gravity"] for p in problems(topics, NOW).values() if isinstance(p, dict)]
    assert found == ["everybody", "work", "later", "later"]


def test_a_second_fault_of_one_machine_is_shown_beside_the_first() -> None:
    topics = healthy()
    faults = [["pod", "m2", "port up leads nowhere"], ["pod", "m2", "port down leads to m7"]]
    topics["server"] = {"server": conditions(cabling=faults)}
    found = problems(topics, NOW)
    assert list(found) == ["cable/m2", "cable/m2/2"]
    assert [p["cause"] for p in found.values() if isinstance(p, dict)] == [row[2] for row in faults]


def test_the_owner_of_an_ill_device_is_named() -> None:
    topics = healthy()
    topics["devices"]["pod/0/4"] = ("m2", 0, "DOWN", "p1", "")
    (found,) = problems(topics, NOW).values()
    assert isinstance(found, dict)
    assert found["cause"].endswith("in use by p1 of alice")


def test_of_many_problems_each_kind_is_shown_first() -> None:
    topics = healthy()
    topics["clusters"] = _EMPTY
    topics["partitions"] = {
        f"p{at}": {"state": "ERROR", "owner": "alice", "errors": []} for at in range(200)
    }
    shown = problems_shown(problems(topics, NOW), 100)
    assert len(shown) == 100
    assert list(shown)[-1] == "drained-empty/m1", "the order stays"


def test_a_request_with_an_estimate_is_not_reported_as_starving() -> None:
    topics = healthy()
    topics["waiters"] = {"w1": waiter(since=NOW - 9999, starts=NOW + 60)}
    assert problems(topics, NOW) == {}
    topics["waiters"] = {"w1": waiter(since=NOW - STARVES_SECONDS + 1)}
    assert problems(topics, NOW) == {}
