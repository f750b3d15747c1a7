"""An IPUJob as the operator reads it: the object's fields, checked once. Pure.

What the schema cannot say is in `problem`, and then in the job's status.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

#: Stands at every job that may hold a partition, until it holds none.
FINALIZER: Final = "graphcore.ai/podwright"
_STAMP: Final = "%Y-%m-%dT%H:%M:%SZ"


class JobKey(NamedTuple):
    """A job in its cluster. A job that was made anew under its name has another uid."""

    namespace: str
    name: str
    uid: str


class RestartPolicy(NamedTuple):
    """When a job is started anew. limit: how often at most. codes: pairs, first and last, for
    ExitCode; none: 128 to 255, those that a signal ended."""

    kind: str = "Never"
    limit: int = 3
    codes: tuple[tuple[int, int], ...] = ()

    def restarts(self, *, failed: bool, code: int | None) -> bool:
        """Whether it is started anew after that end, the count aside. code: of the program; None:
        it was not the program that failed."""
        if not failed:
            return self.kind == "Always"
        if self.kind == "ExitCode" and code is not None:
            return any(low <= code <= high for low, high in self.codes or ((128, 255),))
        return self.kind != "Never"


_NEVER: Final = RestartPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class IpuJob:
    """A job. instances: each with a partition of `ipus` devices and `workers` pods.

    generation: how often its spec was changed, as the API server counts; 0: not known.

    replicas: of the model in each worker; 0: not said. ttl: seconds of an interactive job; 0: it
    is none. created, started: seconds since 1970; started 0: its pods were never made. attempt:
    how often it was started anew. finished: it is over for good.
    """

    key: JobKey
    version: str
    generation: int
    created: float
    deleting: bool
    finalizers: tuple[str, ...]
    instances: int = 0
    ipus: int = 0
    workers: int = 1
    gcds_said: bool = False
    replicas: int = 0
    launcher: Mapping[str, Any] | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    priority_class: str = ""
    restart: RestartPolicy = _NEVER
    clean: str = "None"
    ttl: int = 0
    suspended: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def attempt(self) -> int:
        """How often it was started anew."""
        return int(self.status.get("restartCount") or 0)

    @property
    def started(self) -> float:
        """When its pods were made first, or 0."""
        return seconds(str(self.status.get("startTime") or ""))

    @property
    def finished(self) -> bool:
        """Is it over for good."""
        return bool(self.status.get("completionTime"))

    @property
    def order(self) -> int:
        """Each partition has 2**order devices."""
        return self.ipus.bit_length() - 1


def read_job(item: Mapping[str, Any]) -> IpuJob:
    """The job that an object of the API server's is."""
    meta, spec = item["metadata"], item.get("spec") or {}
    key = JobKey(meta["namespace"], meta["name"], meta["uid"])
    problems: list[str] = []
    instances = int(spec.get("jobInstances") or 0)
    if instances < 0:
        problems.append("jobInstances cannot be negative")
    ipus = _number(spec, "ipusPerJobInstance", problems) or 0
    if ipus & (ipus - 1):
        problems.append(f"ipusPerJobInstance is {ipus}, and no power of two")
    requested_workers = _number(spec, "workersPerJobInstance", problems)
    workers = spec.get("workers") or {}
    template = workers.get("template") or {}
    if not (template.get("spec") or {}).get("containers"):
        problems.append("workers.template.spec.containers names no container")
    count = _workers(requested_workers, int(workers.get("replicas") or 1), instances, problems)
    launcher = spec.get("launcher")
    if launcher is not None and not launcher.get("command"):
        problems.append("launcher.command names no program")
    return IpuJob(
        key=key,
        version=meta.get("resourceVersion", ""),
        generation=int(meta.get("generation") or 0),
        created=seconds(meta.get("creationTimestamp") or ""),
        deleting=bool(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        instances=max(instances, 0),
        ipus=ipus,
        workers=count,
        gcds_said=requested_workers is not None,
        replicas=_number(spec, "modelReplicasPerWorker", problems) or 0,
        launcher=launcher,
        template=template,
        priority_class=str((template.get("spec") or {}).get("priorityClassName") or ""),
        restart=_restart(spec.get("restartPolicy") or {}, problems),
        clean=spec.get("cleanPodPolicy") or "None",
        ttl=_ttl(spec.get("interactive"), problems),
        suspended=bool(spec.get("suspend")),
        status=item.get("status") or {},
        problem="; ".join(problems),
    )


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return time.strftime(_STAMP, time.gmtime(seconds))


def seconds(text: str) -> float:
    """Seconds since 1970 of such a time; 0.0 for none."""
    try:
        return float(calendar.timegm(time.strptime(text, _STAMP)))
    except ValueError:
        return 0.0


def _number(spec: Mapping[str, Any], name: str, problems: list[str]) -> int | None:
    text = spec.get(name)
    if text is None:
        return None
    if not (isinstance(text, str) and text.isascii() and text.isdecimal() and 0 < len(text) < 7):
        problems.append(f"{name} is {str(text)[:20]!r}, and no number")
        return None
    if int(text) == 0:
        problems.append(f"{name} is 0")
        return None
    return int(text)


def _workers(requested: int | None, replicas: int, instances: int, problems: list[str]) -> int:
    """Workers of each instance. workers.replicas is 1 where nothing is said; else it counts those
    of one instance or of all."""
    if requested is None:
        return replicas
    if replicas not in (1, requested, requested * instances):
        problems.append(
            f"workers.replicas is {replicas}, and workersPerJobInstance is {requested} in each of"
            f" {instances} job instances"
        )
    return requested


def _restart(policy: Mapping[str, Any], problems: list[str]) -> RestartPolicy:
    limit = policy.get("backOffLimit")
    if limit is not None and limit < 0:
        problems.append("restartPolicy.backOffLimit cannot be negative")
    codes = []
    for part in str(policy.get("exitCodes") or "").split(","):
        low, _, high = part.partition("-")
        if part and not (low.isdecimal() and (high or low).isdecimal() and len(part) < 20):
            problems.append(f"restartPolicy.exitCodes has {part[:20]!r}")
        elif part:
            codes.append((int(low), int(high or low)))
    return RestartPolicy(policy.get("type") or "Never", 3 if limit is None else limit, tuple(codes))


def _ttl(setting: Mapping[str, Any] | None, problems: list[str]) -> int:
    if setting is None:
        return 0
    ttl = int(setting.get("ttl") or 0)
    if ttl <= 0:
        problems.append("interactive.ttl is a number of seconds above 0")
    return max(ttl, 0)
