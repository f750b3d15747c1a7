"""`podwright doctor` and a server: an allocation and a partition, there or not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from podwright.server._caller_identity import _account_name
from tests.whole.conftest import Pod

DOCTOR = ("podwright", "doctor", "--host=localhost", "--json")


def said(pod: Pod, *words: str) -> dict[str, dict[str, str]]:
    ran = pod.run(*DOCTOR, *words)
    return {f["check"]: f for f in json.loads(ran.out) if f["host"] == "server"}


def test_the_server_an_allocation_and_a_partition(shared16: Pod) -> None:
    assert said(shared16) == {}, "nothing was named"
    shared16.good("vipu", "create", "partition", "p4", "--size", "4")
    found = said(shared16, "--vipu-allocation=pod16", "--vipu-partition=p4")
    assert {f["level"] for f in found.values()} == {"ok"}
    assert found["allocation"]["found"] == "pod16: 12 of 16 devices are free"
    assert found["partition"]["found"].startswith("p4: 4 devices, ")
    found = said(shared16, "--vipu-allocation=pod17", "--vipu-partition=p5")
    assert found["allocation"]["found"] == "there is no allocation pod17; there are: pod16"
    assert found["allocation"]["todo"] == "vipu list allocations"
    assert found["partition"]["level"] == "problem"
    assert "p5" in found["partition"]["found"]
    del shared16.environ["PODWRIGHT_SOCKET"]
    found = said(shared16, "--vipu-server-host=127.0.0.1", "--vipu-server-port=9")
    assert found["answers"]["level"] == "problem"


def test_without_options_it_looks_at_server_store_and_agents(shared16: Pod) -> None:
    ran = shared16.run("podwright", "doctor", "--json")
    found = {f["check"]: f for f in json.loads(ran.out) if f["host"] == "server"}
    assert {f["level"] for f in found.values()} == {"ok"}
    own_name = _account_name(os.getuid()) or str(os.getuid())
    assert found["answers"]["found"].endswith(f"you are {own_name} (administrator)")
    assert found["store"]["found"] == "it takes changes"
    assert found["agents"]["found"] == "4 machines answer; devices: 16 FREE"


def test_a_server_that_is_named_and_down_is_a_problem(shared16: Pod) -> None:
    shared16.environ["PODWRIGHT_SOCKET"] = "/nowhere/socket"
    ran = shared16.run("podwright", "doctor", "--json")
    assert ran.code == 1
    found = {f["check"]: f for f in json.loads(ran.out) if f["host"] == "server"}
    assert found["answers"]["level"] == "problem"
    assert found["answers"]["todo"]


def test_a_fabric_that_takes_no_epoch_is_a_warning(make_pod: Callable[..., Pod]) -> None:
    pod = make_pod("--preset", "nvl72", "--nmx", "http://127.0.0.1:9")
    found = said(pod, "--vipu-allocation=nvl72")
    assert found["fabric"]["level"] == "warning"
    assert found["fabric"]["found"].startswith("NMX-M takes no epoch: a request that a paused")
    assert "end the first" in found["fabric"]["todo"]
