"""Sixty IPUJobs, good and bad by their schema, as the API server judged them with the definition of
Graphcore's chart 1.2.0 (Kubernetes 1.20.2, server-side dry run)."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

_MAIN = "spec.workers.template.spec.containers.0."
_POD = "spec.workers.template.spec."
_GONE = object()


class Row(NamedTuple):
    """What is set in a plain job. good: the schema takes it."""

    name: str
    good: bool
    changes: dict[str, Any]


def _row(name: str, good: bool, *pairs: Any) -> Row:
    return Row(name, good, dict(zip(pairs[::2], pairs[1::2], strict=True)))


ROWS = (
    _row("plain", True),
    _row("ipus-number", False, "spec.ipusPerJobInstance", 4),
    _row("ipus-missing", False, "spec.ipusPerJobInstance", _GONE),
    _row("ipus-blank", True, "spec.ipusPerJobInstance", " "),
    _row("ipus-word", True, "spec.ipusPerJobInstance", "four"),
    _row("ipus-three", True, "spec.ipusPerJobInstance", "3"),
    _row("ipus-null", False, "spec.ipusPerJobInstance", None),
    _row("instances-text", False, "spec.jobInstances", "2"),
    _row("instances-missing", False, "spec.jobInstances", _GONE),
    _row("instances-zero", True, "spec.jobInstances", 0),
    _row("instances-negative", False, "spec.jobInstances", -1),
    _row("instances-fraction", False, "spec.jobInstances", 1.5),
    _row("instances-huge", False, "spec.jobInstances", 3000000000),
    _row("workers-missing", False, "spec.workers", _GONE),
    _row("workers-empty", True, "spec.workers", {}),
    _row("workers-list", False, "spec.workers", []),
    _row("replicas-zero", False, "spec.workers.replicas", 0),
    _row("replicas-two", True, "spec.workers.replicas", 2),
    _row("replicas-text", False, "spec.workers.replicas", "2"),
    _row("strategy", True, "spec.workers.strategy", {"type": "Recreate"}),
    _row("strategy-surge", True, "spec.workers.strategy", {"rollingUpdate": {"maxSurge": "25%"}}),
    _row(
        "strategy-surge-number", True, "spec.workers.strategy", {"rollingUpdate": {"maxSurge": 1}}
    ),
    _row(
        "strategy-surge-list", False, "spec.workers.strategy", {"rollingUpdate": {"maxSurge": []}}
    ),
    _row("per-instance", True, "spec.workersPerJobInstance", "2"),
    _row("per-instance-number", False, "spec.workersPerJobInstance", 2),
    _row("per-worker", True, "spec.modelReplicasPerWorker", "4"),
    _row("per-worker-number", False, "spec.modelReplicasPerWorker", 4),
    _row("clean-all", True, "spec.cleanPodPolicy", "All"),
    _row("clean-workers", True, "spec.cleanPodPolicy", "Workers"),
    _row("clean-small-letters", False, "spec.cleanPodPolicy", "all"),
    _row("clean-running", False, "spec.cleanPodPolicy", "Running"),
    _row("ttl", True, "spec.interactive", {"ttl": 60}),
    _row("ttl-missing", False, "spec.interactive", {}),
    _row("ttl-text", False, "spec.interactive", {"ttl": "1h"}),
    _row("ttl-zero", True, "spec.interactive", {"ttl": 0}),
    _row("launcher", True, "spec.launcher", {"command": ["poprun", "a"]}),
    _row("launcher-missing-command", False, "spec.launcher", {"env": []}),
    _row("launcher-command-text", False, "spec.launcher", {"command": "poprun a"}),
    _row("launcher-empty-command", True, "spec.launcher", {"command": []}),
    _row(
        "launcher-env",
        True,
        "spec.launcher",
        {"command": ["a"], "env": [{"name": "A", "value": "b"}]},
    ),
    _row(
        "launcher-env-number",
        False,
        "spec.launcher",
        {"command": ["a"], "env": [{"name": "A", "value": 1}]},
    ),
    _row(
        "launcher-env-no-name", False, "spec.launcher", {"command": ["a"], "env": [{"value": "b"}]}
    ),
    _row("restart", True, "spec.restartPolicy", {"type": "OnFailure", "backOffLimit": 5}),
    _row("restart-missing-type", False, "spec.restartPolicy", {"backOffLimit": 5}),
    _row("restart-sometimes", False, "spec.restartPolicy", {"type": "Sometimes"}),
    _row("restart-word", False, "spec.restartPolicy", "Always"),
    _row("restart-codes", True, "spec.restartPolicy", {"type": "ExitCode", "exitCodes": "1,10-19"}),
    _row("restart-one-code", True, "spec.restartPolicy", {"type": "ExitCode", "exitCodes": "137"}),
    _row(
        "restart-codes-spaces",
        False,
        "spec.restartPolicy",
        {"type": "ExitCode", "exitCodes": "1, 2"},
    ),
    _row("restart-codes-empty", False, "spec.restartPolicy", {"type": "ExitCode", "exitCodes": ""}),
    _row("restart-code-number", False, "spec.restartPolicy", {"type": "ExitCode", "exitCodes": 1}),
    _row("container-no-name", False, _MAIN + "name", _GONE),
    _row("container-command-text", False, _MAIN + "command", "sh"),
    _row("limits", True, _MAIN + "resources", {"limits": {"cpu": 32, "memory": "200Gi"}}),
    _row("limits-word", False, _MAIN + "resources", {"limits": {"memory": "much"}}),
    _row("port-text", False, _MAIN + "ports", [{"containerPort": "80"}]),
    _row("no-containers", False, _POD + "containers", _GONE),
    _row(
        "shared-memory",
        True,
        _POD + "volumes",
        [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "10Gi"}}],
    ),
    _row("volume-no-name", False, _POD + "volumes", [{"emptyDir": {}}]),
    _row("unknown-field", True, "spec.somethingElse", {"a": 1}),
)

#: Those of the good that servers with CEL refuse with our definition (1.25 and newer).
REFUSED_BY_CEL = (
    "ipus-blank",
    "ipus-word",
    "ttl-zero",
    "launcher-empty-command",
)


def manifest(row: Row) -> dict[str, Any]:
    """The object."""
    out: dict[str, Any] = {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": row.name},
        "spec": {
            "ipusPerJobInstance": "4",
            "jobInstances": 1,
            "workers": {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
        },
    }
    for path, value in row.changes.items():
        *way, last = path.split(".")
        at: Any = out
        for step in way:
            at = at[int(step) if step.isdecimal() else step]
        if value is _GONE:
            del at[last]
        else:
            at[last] = copy.deepcopy(value)
    return out
