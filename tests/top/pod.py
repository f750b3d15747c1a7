"""A pod for tests of `top`: two link domains of sixteen devices, partitions, a line, a failure."""

from __future__ import annotations

import threading
from typing import Any

from podwright.errors import Unavailable

NOW = 1_700_000_000.0


def snapshot(domains: int = 2, size: int = 16) -> dict[str, dict[str, Any]]:
    devices: dict[str, Any] = {}
    for domain in range(domains):
        for offset in range(size):
            state, partition = "FREE", ""
            if domain == 0 and offset < 8:
                state, partition = "USED", "train" if offset < 4 else "eval"
            if domain == 1 and offset >= 12:
                state = "DOWN"
            machine = f"m{domain * size // 4 + offset // 4}"
            devices[f"c0/{domain}/{offset}"] = (machine, offset % 4, state, partition, "a0")
    alice: dict[str, Any] = {"size": 4, "state": "ACTIVE", "owner": "alice", "job": "", "until": 0}
    return {
        "devices": devices,
        "partitions": {
            "train": {**alice, "created": 10, "job": "slurm/4711", "until": NOW + 7500},
            "eval": {**alice, "created": 20, "owner": "bob"},
        },
        "waiters": {
            "w1": {
                "place": 1,
                "owner": "carol",
                "asked": "16 devices",
                "needs": "eval to end",
                "since": NOW - 90,
                "starts": 0,
            }
        },
        "machines": {
            f"m{n}": {"cluster": "c0", "state": "DOWN" if n == 7 else "UP", "reason": ""}
            for n in range(domains * size // 4)
        },
        "events": {
            str(n): {
                "at": NOW - 60 + n,
                "who": "alice",
                "what": "CreatePartition",
                "about": "train",
                "outcome": "done",
            }
            for n in range(3)
        },
        "fragments": {"c0": {"free": 20, "sizes": [[8, 2, 4], [16, 0, 20]], "kept": {}}},
    }


class Pod:
    """In place of a server: what it shows, and what was asked of it."""

    def __init__(self) -> None:
        self.seen = snapshot()
        self.away = False
        self.looks = 0
        self.done: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def snapshot(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            self.looks += 1
        if self.away:
            raise Unavailable("the server does not answer")
        return self.seen

    def explain(self, name: str) -> list[str]:
        return [f"{name}: no block of 16 is free"]

    def drain(self, machine: str) -> None:
        self.done.append(("drain", machine))

    def resume(self, machine: str) -> None:
        self.done.append(("resume", machine))
