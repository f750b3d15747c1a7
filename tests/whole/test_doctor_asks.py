"""`podwright doctor` and a server: an allocation and a partition, there or not."""

from __future__ import annotations

import json

from tests.whole.conftest import Pod

DOCTOR = ("podwright", "doctor", "--host=localhost", "--json")


def said(pod: Pod, *words: str) -> dict[str, dict[str, str]]:
    ran = pod.run(*DOCTOR, *words)
    return {f["check"]: f for f in json.loads(ran.out) if f["host"] == "server"}


def test_the_server_an_allocation_and_a_partition(pod16: Pod) -> None:
    assert said(pod16) == {}, "nothing was named"
    pod16.good("vipu", "create", "partition", "p4", "--size", "4")
    found = said(pod16, "--vipu-allocation=pod16", "--vipu-partition=p4")
    assert {f["level"] for f in found.values()} == {"ok"}
    assert found["allocation"]["found"] == "pod16: 12 of 16 devices are free"
    assert found["partition"]["found"].startswith("p4: 4 devices, ")
    found = said(pod16, "--vipu-allocation=pod17", "--vipu-partition=p5")
    assert found["allocation"]["found"] == "there is no allocation pod17; there are: pod16"
    assert found["allocation"]["todo"] == "vipu list allocations"
    assert found["partition"]["level"] == "problem"
    assert "p5" in found["partition"]["found"]
    del pod16.environ["PODWRIGHT_SOCKET"]
    found = said(pod16, "--vipu-server-host=127.0.0.1", "--vipu-server-port=9")
    assert found["answers"]["level"] == "problem"
