"""An operator with many simulated IPUs, and the API server's own record of its writes."""

from __future__ import annotations

import json
from pathlib import Path

from podwright.wire import PartitionInfo
from tests.kubernetes.lab import KubeLab
from tests.kubernetes.test_ipujobs import ACCOUNT, World

JOBS = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
PODS = "/api/v1/namespaces/default/pods"
RULES = [
    {"level": "Metadata", "users": [ACCOUNT], "verbs": ["create", "update", "patch", "delete"]},
    {"level": "None"},
]


class Wide(World):
    """An operator with several controllers of 256 IPUs each."""

    patience = 1800.0
    every = 2.0  # to look at all jobs takes the API server long

    def __init__(self, lab: KubeLab, folder: Path, servers: int) -> None:
        self.sockets = [folder / f"vipu{number}.sock" for number in range(servers)]
        super().__init__(lab, folder)

    def start_server(self) -> None:
        """Start all of them."""
        for number, socket in enumerate(self.sockets):
            self.environ["PODWRIGHT_SOCKET"] = str(socket)
            self._start(
                f"server{number}",
                *("vipu-server", "--preset", "pod256", "--api-port", "0", "--socket"),
                *(str(socket), "--storage", str(self.folder / f"store{number}.db")),
            )
            self._await_server()

    @property
    def operator_words(self) -> list[str]:
        """Return the operator's options."""
        words = super().operator_words
        all_of_them = ",".join(f"unix:{socket}" for socket in self.sockets)
        words[words.index("--controllers") + 1] = all_of_them
        return words

    def partitions(self) -> dict[str, PartitionInfo]:
        """Return those of all controllers."""
        found: dict[str, PartitionInfo] = {}
        for socket in self.sockets:
            self.environ["PODWRIGHT_SOCKET"] = str(socket)
            found |= super().partitions()
        return found

    def put(self, name: str) -> None:
        """Create an IPUJob of four IPUs."""
        template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        spec = {"ipusPerJobInstance": "4", "jobInstances": 1, "workers": {"template": template}}
        about = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "spec": spec}
        self.lab.http.ask("POST", JOBS, {**about, "metadata": {"name": name}})


class Audit:
    """The operator's writes, according to the API server."""

    def __init__(self, folder: Path) -> None:
        self.log, policy = folder / "audit.log", folder / "policy.json"
        about = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        policy.write_text(json.dumps({**about, "omitStages": ["RequestReceived"], "rules": RULES}))
        self.options = {"audit-policy-file": str(policy), "audit-log-path": str(self.log)}

    def written(self) -> list[tuple[str, str, str]]:
        """Return verb, resource and name of each write that was answered."""
        lines = self.log.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [
            (one["verb"], one["objectRef"]["resource"], one["objectRef"].get("name", ""))
            for one in events
        ]
