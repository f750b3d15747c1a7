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
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


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

    def restarts(self, *, failed: bool, exit_code: int | None) -> bool:
        """Whether it is started anew after that end, the count aside. exit_code: of the program;
        None: it was not the program that failed.
        """
        if not failed:
            return self.kind == "Always"
        if self.kind == "ExitCode" and exit_code is not None:
            return any(
                first_code <= exit_code <= last_code
                for first_code, last_code in self.codes or ((128, 255),)
            )
        return self.kind != "Never"


_NEVER_RESTART: Final = RestartPolicy()


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
    restart: RestartPolicy = _NEVER_RESTART
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


def read_job(job_object: Mapping[str, Any]) -> IpuJob:
    """The job that an object of the API server's is."""
    metadata, job_spec = job_object["metadata"], job_object.get("spec") or {}
    job_key = JobKey(metadata["namespace"], metadata["name"], metadata["uid"])
    problems: list[str] = []
    instances = int(job_spec.get("jobInstances") or 0)
    if instances < 0:
        problems.append("jobInstances cannot be negative")
    ipus = _read_number(job_spec, "ipusPerJobInstance", problems) or 0
    if ipus & (ipus - 1):
        problems.append(f"ipusPerJobInstance is {ipus}, and no power of two")
    requested_workers = _read_number(job_spec, "workersPerJobInstance", problems)
    workers_spec = job_spec.get("workers") or {}
    template = workers_spec.get("template") or {}
    if not (template.get("spec") or {}).get("containers"):
        problems.append("workers.template.spec.containers names no container")
    worker_count = _workers_per_instance(
        requested_workers, int(workers_spec.get("replicas") or 1), instances, problems
    )
    launcher = job_spec.get("launcher")
    if launcher is not None and not launcher.get("command"):
        problems.append("launcher.command names no program")
    return IpuJob(
        key=job_key,
        version=metadata.get("resourceVersion", ""),
        generation=int(metadata.get("generation") or 0),
        created=seconds(metadata.get("creationTimestamp") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        instances=max(instances, 0),
        ipus=ipus,
        workers=worker_count,
        gcds_said=requested_workers is not None,
        replicas=_read_number(job_spec, "modelReplicasPerWorker", problems) or 0,
        launcher=launcher,
        template=template,
        priority_class=str((template.get("spec") or {}).get("priorityClassName") or ""),
        restart=_restart_policy(job_spec.get("restartPolicy") or {}, problems),
        clean=job_spec.get("cleanPodPolicy") or "None",
        ttl=_interactive_ttl_s(job_spec.get("interactive"), problems),
        suspended=bool(job_spec.get("suspend")),
        status=job_object.get("status") or {},
        problem="; ".join(problems),
    )


def stamp(unix_seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return time.strftime(_TIME_FORMAT, time.gmtime(unix_seconds))


def seconds(time_text: str) -> float:
    """Seconds since 1970 of such a time; 0.0 for none."""
    try:
        return float(calendar.timegm(time.strptime(time_text, _TIME_FORMAT)))
    except ValueError:
        return 0.0


def _read_number(spec: Mapping[str, Any], field_name: str, problems: list[str]) -> int | None:
    text = spec.get(field_name)
    if text is None:
        return None
    if not (isinstance(text, str) and text.isascii() and text.isdecimal() and 0 < len(text) < 7):
        problems.append(f"{field_name} is {str(text)[:20]!r}, and no number")
        return None
    if int(text) == 0:
        problems.append(f"{field_name} is 0")
        return None
    return int(text)


def _workers_per_instance(
    requested_workers: int | None, replicas: int, instances: int, problems: list[str]
) -> int:
    """Workers of each instance. workers.replicas is 1 where nothing is said; else it counts those
    of one instance or of all."""
    if requested_workers is None:
        return replicas
    if replicas not in (1, requested_workers, requested_workers * instances):
        problems.append(
            f"workers.replicas is {replicas}, and workersPerJobInstance is {requested_workers} in "
            f"each of {instances} job instances"
        )
    return requested_workers


def _restart_policy(policy: Mapping[str, Any], problems: list[str]) -> RestartPolicy:
    restart_limit = policy.get("backOffLimit")
    if restart_limit is not None and restart_limit < 0:
        problems.append("restartPolicy.backOffLimit cannot be negative")
    code_ranges = []
    for range_text in str(policy.get("exitCodes") or "").split(","):
        first_code, _, last_code = range_text.partition("-")
        if range_text and not (
            first_code.isdecimal()
            and (last_code or first_code).isdecimal()
            and len(range_text) < 20
        ):
            problems.append(f"restartPolicy.exitCodes has {range_text[:20]!r}")
        elif range_text:
            code_ranges.append((int(first_code), int(last_code or first_code)))
    return RestartPolicy(
        policy.get("type") or "Never",
        3 if restart_limit is None else restart_limit,
        tuple(code_ranges),
    )


def _interactive_ttl_s(interactive_spec: Mapping[str, Any] | None, problems: list[str]) -> int:
    if interactive_spec is None:
        return 0
    ttl_seconds = int(interactive_spec.get("ttl") or 0)
    if ttl_seconds <= 0:
        problems.append("interactive.ttl is a number of seconds above 0")
    return max(ttl_seconds, 0)
