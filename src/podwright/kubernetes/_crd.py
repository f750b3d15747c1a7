"""The custom resource IPUJob, `graphcore.ai/v1alpha1`: what Graphcore's operator (chart 1.2.0) has.

Fields, types, defaults, printer columns, `scale` and status are the same, so manifests that it
takes are taken here, and those that it refuses are refused. `suspend` is ours. Servers from 1.25 on
also check RULES, in CEL; what no schema can say stands in the job's status.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.kubernetes._shapes import Schema, plain, pod_template

GROUP: Final = "graphcore.ai"
VERSION: Final = "v1alpha1"
KIND: Final = "IPUJob"
PLURAL: Final = "ipujobs"
API_VERSION: Final = f"{GROUP}/{VERSION}"

#: From this minor version on the API server checks CEL in CRDs (beta, on by default).
CEL_FROM: Final = 25

EXIT_CODES: Final = r"^([0-9]+(-[0-9]+)?)(,([0-9]+(-[0-9]+)?))*$"

#: What servers with CEL refuse beyond the schema: the rule, and what its breaker is told.
RULES: Final[tuple[tuple[str, str], ...]] = (
    (
        "self.ipusPerJobInstance.matches('^[1-9][0-9]{0,5}$')",
        'ipusPerJobInstance is a number of IPUs, as text: "4"',
    ),
    (
        "!has(self.workersPerJobInstance)"
        " || self.workersPerJobInstance.matches('^[1-9][0-9]{0,5}$')",
        'workersPerJobInstance is a number, as text: "2"',
    ),
    (
        "!has(self.modelReplicasPerWorker)"
        " || self.modelReplicasPerWorker.matches('^[1-9][0-9]{0,5}$')",
        'modelReplicasPerWorker is a number, as text: "2"',
    ),
    (
        "!has(self.interactive) || self.interactive.ttl > 0",
        "interactive.ttl is a number of seconds above 0",
    ),
    (
        "!has(self.restartPolicy) || !has(self.restartPolicy.backOffLimit)"
        " || self.restartPolicy.backOffLimit >= 0",
        "restartPolicy.backOffLimit cannot be negative",
    ),
    (
        "!has(self.launcher) || size(self.launcher.command) > 0",
        "launcher.command names no program",
    ),
    (
        "self.ipusPerJobInstance == oldSelf.ipusPerJobInstance",
        "ipusPerJobInstance cannot be changed; delete the job and create it anew",
    ),
)


def crd(minor: int) -> dict[str, Any]:
    """The definition, for servers of version 1.`minor`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": _columns(),
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.jobInstances",
                            "statusReplicasPath": ".status.desiredReplicas",
                        },
                    },
                    "schema": {"openAPIV3Schema": schema(minor)},
                }
            ],
        },
    }


def schema(minor: int) -> Schema:
    """What an IPUJob is."""
    return _object(
        {
            "apiVersion": plain("text"),
            "kind": plain("text"),
            "metadata": plain("object"),
            "spec": _spec(minor),
            "status": _status(),
        }
    )


def _columns() -> list[dict[str, Any]]:
    rows = (
        ("status", "string", ".status.launcherStatus"),
        ("current", "integer", ".status.currentReplicas"),
        ("desired", "integer", ".status.desiredReplicas"),
        ("LastMessage", "string", ".status.lastMessage"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    return [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in rows]


def _object(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    out: Schema = {"type": "object", "properties": properties}
    return out | ({"required": list(required)} if required else {})


def _spec(minor: int) -> Schema:
    out = _object(
        {
            "cleanPodPolicy": plain(
                "text",
                enum=["None", "All", "Workers"],
                description="Which pods go when the job is over; None by default. A pod that"
                " still runs then goes in any case, since its IPUs are given back.",
            ),
            "interactive": _object(
                {"ttl": plain("int32", description="Seconds from the start to the end.")},
                ("ttl",),
            ),
            "ipusPerJobInstance": plain(
                "text", description="IPUs in the partition of each job instance."
            ),
            "jobInstances": plain(
                "int32", description="Job instances; each has a partition of its own."
            ),
            "launcher": _object(
                {
                    "command": {"type": "array", "items": plain("text")},
                    "env": _env(),
                },
                ("command",),
            ),
            "modelReplicasPerWorker": plain(
                "text", description="Replicas of the model in each worker."
            ),
            "restartPolicy": _object(
                {
                    "backOffLimit": plain(
                        "int32", default=3, description="How often the job is restarted at most."
                    ),
                    "exitCodes": plain(
                        "text",
                        pattern=EXIT_CODES,
                        description="For ExitCode: the codes after which it is restarted,"
                        " as in 2,10-19.",
                    ),
                    "type": plain("text", enum=["Always", "OnFailure", "Never", "ExitCode"]),
                },
                ("type",),
            ),
            "suspend": plain(
                "bool",
                description="Podwright's own: while true the job has neither pods nor IPUs.",
            ),
            "workers": _object(
                {
                    "replicas": plain("int32", default=1, minimum=1),
                    "strategy": _object(
                        {
                            "rollingUpdate": _object(
                                {
                                    "maxSurge": plain("number-or-text"),
                                    "maxUnavailable": plain("number-or-text"),
                                }
                            ),
                            "type": plain("text"),
                        }
                    ),
                    "template": pod_template(),
                }
            ),
            "workersPerJobInstance": plain(
                "text", description="Workers of each job instance, which share its partition."
            ),
        },
        ("ipusPerJobInstance", "jobInstances", "workers"),
    )
    if minor >= CEL_FROM:
        out["x-kubernetes-validations"] = [
            {"rule": rule, "message": message} for rule, message in RULES
        ]
    return out


def _env() -> Schema:
    container = pod_template()["properties"]["spec"]["properties"]["containers"]["items"]
    found: Schema = container["properties"]["env"]
    return found


def _status() -> Schema:
    condition = _object(
        {
            "lastTransitionTime": plain("time"),
            "lastUpdateTime": plain("time"),
            "message": plain("text"),
            "reason": plain("text"),
            "status": plain("text"),
            "type": plain("text"),
        },
        ("status", "type"),
    )
    count = plain("int32")
    return _object(
        {
            "completionTime": plain("time"),
            "conditions": {"type": "array", "items": condition},
            "currentReplicas": count,
            "desiredReplicas": count,
            "iPUPartitionCreated": plain("bool"),
            "lastMessage": plain("text"),
            "lastReconcileTime": plain("time"),
            "launcherStatus": plain("text", default="Pending"),
            "restartCount": count,
            "startTime": plain("time"),
            "workersStatus": _object({"active": count, "failed": count, "succeeded": count}),
        },
        ("desiredReplicas", "lastMessage"),
    )
