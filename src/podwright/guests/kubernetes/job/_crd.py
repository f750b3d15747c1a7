"""The custom resource IPUJob, `graphcore.ai/v1alpha1`: what Graphcore's operator (chart 1.2.0) has.

Fields, types, defaults, printer columns, `scale` and status are the same, so manifests that it
takes are taken here, and those that it refuses are refused. `suspend` is ours. Servers from 1.25 on
also check RULES, in CEL; what no schema can say is in the job's status.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.guests.kubernetes.job._pod_schemas import Schema, plain, pod_template

JOB_API_GROUP: Final = "graphcore.ai"
VERSION: Final = "v1alpha1"
JOB_KIND: Final = "IPUJob"
JOB_PLURAL: Final = "ipujobs"
API_VERSION: Final = f"{JOB_API_GROUP}/{VERSION}"

#: From this minor version on the API server checks CEL in CRDs (beta, on by default).
CEL_FROM: Final = 25

_UNUSED_DESCRIPTION: Final = "Taken as Graphcore's operator takes it, and without effect."

EXIT_CODES_PATTERN: Final = r"^([0-9]+(-[0-9]+)?)(,([0-9]+(-[0-9]+)?))*$"

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


def crd(minor_version: int) -> dict[str, Any]:
    """The definition, for servers of version 1.`minor_version`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{JOB_PLURAL}.{JOB_API_GROUP}"},
        "spec": {
            "group": JOB_API_GROUP,
            "names": {
                "kind": JOB_KIND,
                "listKind": f"{JOB_KIND}List",
                "plural": JOB_PLURAL,
                "singular": JOB_KIND.lower(),
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
                    "schema": {"openAPIV3Schema": schema(minor_version)},
                }
            ],
        },
    }


def schema(minor_version: int) -> Schema:
    """What an IPUJob is."""
    return _object_schema(
        {
            "apiVersion": plain("text"),
            "kind": plain("text"),
            "metadata": plain("object"),
            "spec": _spec_schema(minor_version),
            "status": _status_schema(),
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
    return [
        {"name": name, "type": column_type, "jsonPath": path} for name, column_type, path in rows
    ]


def _object_schema(
    properties: Schema, required: tuple[str, ...] = (), description: str = ""
) -> Schema:
    object_schema: Schema = {"type": "object", "properties": properties}
    if description:
        object_schema["description"] = description
    return object_schema | ({"required": list(required)} if required else {})


def _spec_schema(minor_version: int) -> Schema:
    spec_schema = _object_schema(
        {
            "cleanPodPolicy": plain(
                "text",
                enum=["None", "All", "Workers"],
                description="Which pods go when the job is over; None by default. A pod that"
                " still runs then goes in any case, since its IPUs are given back.",
            ),
            "interactive": _object_schema(
                {"ttl": plain("int32", description="Seconds from the start to the end.")},
                ("ttl",),
                "A job whose workers wait for somebody who works in them.",
            ),
            "ipusPerJobInstance": plain(
                "text", description="IPUs in the partition of each job instance."
            ),
            "jobInstances": plain(
                "int32", description="Job instances; each has a partition of its own."
            ),
            "launcher": _object_schema(
                {
                    "command": {
                        "type": "array",
                        "items": plain("text"),
                        "description": "The program that starts the workers' programs.",
                    },
                    "env": _env_schema(),
                },
                ("command",),
                "A pod beside the workers, which starts their programs.",
            ),
            "modelReplicasPerWorker": plain(
                "text", description="Replicas of the model in each worker."
            ),
            "restartPolicy": _object_schema(
                {
                    "backOffLimit": plain(
                        "int32", default=3, description="How often the job is restarted at most."
                    ),
                    "exitCodes": plain(
                        "text",
                        pattern=EXIT_CODES_PATTERN,
                        description="For ExitCode: the codes after which it is restarted,"
                        " as in 2,10-19.",
                    ),
                    "type": plain(
                        "text",
                        enum=["Always", "OnFailure", "Never", "ExitCode"],
                        description="After which ends the job is restarted.",
                    ),
                },
                ("type",),
                "Whether the job is restarted when its programs end.",
            ),
            "suspend": plain(
                "bool",
                description="Podwright's own: while true the job has neither pods nor IPUs.",
            ),
            "workers": _object_schema(
                {
                    "replicas": plain(
                        "int32", default=1, minimum=1, description="Workers, if not said otherwise."
                    ),
                    "strategy": _object_schema(
                        {
                            "rollingUpdate": _object_schema(
                                {
                                    "maxSurge": plain(
                                        "number-or-text", description=_UNUSED_DESCRIPTION
                                    ),
                                    "maxUnavailable": plain(
                                        "number-or-text", description=_UNUSED_DESCRIPTION
                                    ),
                                },
                                description=_UNUSED_DESCRIPTION,
                            ),
                            "type": plain("text", description=_UNUSED_DESCRIPTION),
                        },
                        description=_UNUSED_DESCRIPTION,
                    ),
                    "template": pod_template()
                    | {"description": "The pod of a worker: see kubectl explain pod."},
                },
                description="The pods that use the IPUs.",
            ),
            "workersPerJobInstance": plain(
                "text", description="Workers of each job instance, which share its partition."
            ),
        },
        ("ipusPerJobInstance", "jobInstances", "workers"),
        "What is requested.",
    )
    if minor_version >= CEL_FROM:
        spec_schema["x-kubernetes-validations"] = [
            {"rule": rule, "message": message} for rule, message in RULES
        ]
    return spec_schema


def _env_schema() -> Schema:
    container_schema = pod_template()["properties"]["spec"]["properties"]["containers"]["items"]
    env_schema: Schema = container_schema["properties"]["env"]
    return env_schema


def _status_schema() -> Schema:
    condition = _object_schema(
        {
            "lastTransitionTime": plain("time", description="When status changed last."),
            "lastUpdateTime": plain("time", description="The same, for older readers."),
            "message": plain("text", description="The reason, as a sentence."),
            "reason": plain("text", description="The reason, as one word."),
            "status": plain("text", description="True or False."),
            "type": plain(
                "text",
                description="Queued, PartitionReady, Running, Restarting, Suspended, Completed,"
                " Succeeded or Failed.",
            ),
        },
        ("status", "type"),
    )
    return _object_schema(
        {
            "completionTime": plain("time", description="When the job was over for good."),
            "conditions": {
                "type": "array",
                "items": condition,
                "description": "What is true of the job, or has been.",
            },
            "currentReplicas": plain("int32", description="Job instances whose programs run."),
            "desiredReplicas": plain("int32", description="Job instances that are requested."),
            "iPUPartitionCreated": plain("bool", description="Whether all partitions are ready."),
            "lastMessage": plain("text", description="What happens now, or happened last."),
            "lastReconcileTime": plain("time", description="When the status was written."),
            "launcherStatus": plain(
                "text",
                default="Pending",
                description="Pending, Running, Restarting, Suspended, Completed, Failed or"
                " Invalid.",
            ),
            "observedGeneration": plain(
                "int64", description="The generation of the spec that this status is about."
            ),
            "restartCount": plain("int32", description="How often the job was restarted."),
            "startTime": plain("time", description="When its pods were made first."),
            "workersStatus": _object_schema(
                {
                    "active": plain("int32", description="Workers that run."),
                    "failed": plain("int32", description="Workers that have failed."),
                    "succeeded": plain("int32", description="Workers that have succeeded."),
                },
                description="Workers of the present attempt.",
            ),
        },
        ("desiredReplicas", "lastMessage"),
        "What the operator reports.",
    )
