"""Many jobs at once: each runs once, and costs the API server few writes.

Under `make soak` a thousand of them on 1,024 simulated IPUs. What the operator writes is counted in
the API server's own audit log.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.lab import PATIENT, KubeLab, StandIns
from tests.kubernetes.test_ipujobs import ACCOUNT, World

pytestmark = pytest.mark.kubernetes

SOAK = os.environ.get("PODWRIGHT_SOAK") == "1"
COUNT, SERVERS = (1000, 4) if SOAK else (50, 1)
JOBS = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
PODS = "/api/v1/namespaces/default/pods"
#: In a job's life, by the issue that asked for them.
MOST_WRITES = 15
RULES = [
    {"level": "Metadata", "users": [ACCOUNT], "verbs": ["create", "update", "patch", "delete"]},
    {"level": "None"},
]


class Wide(World):
    """An operator with several controllers of 256 IPUs each."""

    def start_server(self) -> None:
        """All of them."""
        for number in range(SERVERS):
            self.socket = self.folder / f"vipu{number}.sock"
            self.environ["PODWRIGHT_SOCKET"] = str(self.socket)
            self._start(
                f"server{number}",
                *("vipu-server", "--preset", "pod256", "--api-port", "0", "--socket"),
                *(str(self.socket), "--storage", str(self.folder / f"store{number}.db")),
            )
            self._await_server()

    @property
    def operator_words(self) -> list[str]:
        """What the operator is told."""
        words = super().operator_words
        sockets = [f"unix:{self.folder}/vipu{number}.sock" for number in range(SERVERS)]
        words[words.index("--controllers") + 1] = ",".join(sockets)
        return words

    def partitions(self) -> dict[str, dict[str, Any]]:
        """Those of all controllers."""
        found: dict[str, dict[str, Any]] = {}
        for number in range(SERVERS):
            self.environ["PODWRIGHT_SOCKET"] = f"{self.folder}/vipu{number}.sock"
            found |= super().partitions()
        return found


class Audit:
    """What the operator wrote, as the API server says."""

    def __init__(self, folder: Path) -> None:
        self.log, policy = folder / "audit.log", folder / "policy.json"
        about = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        policy.write_text(json.dumps({**about, "omitStages": ["RequestReceived"], "rules": RULES}))
        self.options = {"audit-policy-file": str(policy), "audit-log-path": str(self.log)}

    def written(self) -> list[tuple[str, str, str]]:
        """Verb, resource and name of each write that was answered."""
        lines = self.log.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [
            (one["verb"], one["objectRef"]["resource"], one["objectRef"].get("name", ""))
            for one in events
        ]


@pytest.fixture(scope="module")
def wide(
    _clean_start: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Wide, Audit]]:
    folder = tmp_path_factory.mktemp("many")
    audit = Audit(folder)
    options = {**PATIENT, "kube-apiserver": audit.options}
    with KubeLab(options=options) as lab, StandIns(lab.http, 4, lasts=1.0):
        made = Wide(lab, folder)
        try:
            yield made, audit
        finally:
            made.stop()


def test_each_runs_once_and_costs_few_writes(wide: tuple[Wide, Audit]) -> None:
    jobs, audit = wide
    http = jobs.lab.http
    names = [f"m{number:04d}" for number in range(COUNT)]
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"ipusPerJobInstance": "4", "jobInstances": 1, "workers": {"template": template}}
    about = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "spec": spec}

    def put(name: str) -> None:
        http.ask("POST", JOBS, {**about, "metadata": {"name": name}})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, names))

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
    http.ask("DELETE", JOBS)
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
