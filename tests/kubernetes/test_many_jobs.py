"""Many jobs at once: each runs once, and causes few writes to the API server.

Under `make soak` a thousand of them run on 1,024 simulated IPUs. The operator's writes are counted
in the API server's own audit log.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kubernetes.lab import PATIENT, KubeLab, StandIns
from tests.kubernetes.wide import JOBS, PODS, Audit, Wide

pytestmark = pytest.mark.kubernetes

SOAK = os.environ.get("PODWRIGHT_SOAK") == "1"
COUNT, SERVERS = (1000, 4) if SOAK else (50, 1)
#: In a job's life, by the issue that asked for them.
MOST_WRITES = 15


@pytest.fixture(scope="module")
def wide(
    _clean_start: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Wide, Audit]]:
    folder = tmp_path_factory.mktemp("many")
    audit = Audit(folder)
    options = {**PATIENT, "kube-apiserver": audit.options}
    with KubeLab(options=options) as lab, StandIns(lab.http, 4, lasts=1.0):
        made = Wide(lab, folder, SERVERS)
        try:
            yield made, audit
        finally:
            made.stop()


def test_each_job_runs_once_and_costs_few_writes(wide: tuple[Wide, Audit]) -> None:
    jobs, audit = wide
    http = jobs.lab.http
    names = [f"m{number:04d}" for number in range(COUNT)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(jobs.put, names))

    def ended() -> bool:
        states = Counter(
            (one.get("status") or {}).get("launcherStatus")
            for one in http.ask("GET", JOBS)["items"]
        )
        return states == {"Completed": COUNT}

    jobs.until("all of them ended", ended)
    for one in http.ask("GET", JOBS)["items"]:
        assert one["status"]["restartCount"] == 0
    pods = [one["metadata"]["name"] for one in http.ask("GET", PODS)["items"]]
    assert sorted(pods) == [f"{name}-worker-0" for name in names]
    jobs.until("all given back", lambda: not jobs.partitions())
    with ThreadPoolExecutor(2) as pool:  # one request for all of them has 34 s
        list(pool.map(lambda name: http.ask("DELETE", f"{JOBS}/{name}"), names))
    jobs.until("all gone", lambda: not http.ask("GET", JOBS)["items"])

    wrote = audit.written()
    each = Counter(name.partition("-worker-")[0] for _, what, name in wrote if what != "leases")
    made = [name for verb, what, name in wrote if (verb, what) == ("create", "pods")]
    assert len(made) == COUNT
    assert max(each.values()) <= MOST_WRITES, each.most_common(3)
    print(json.dumps({"jobs": COUNT, "most writes of a job": max(each.values())}))

    def leases() -> int:
        return sum(what == "leases" for _, what, _ in audit.written())

    first = leases()
    jobs.until("it is idle", lambda: leases() > first)
    since, first = len(audit.written()), leases()
    jobs.until("its leases", lambda: leases() >= first + 3)
    assert {what for _, what, _ in audit.written()[since:]} == {"leases"}
