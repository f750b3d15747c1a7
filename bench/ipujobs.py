"""What IPUJobs cost on a real Kubernetes, and how soon their status says what went wrong.

`ipujobs:many`: a thousand at once on 1,024 simulated IPUs, and plain Jobs among them; `ipujobs:200`
is 200 of them.
`ipujobs:troubles`: from when the server, or Kubernetes, knows of a trouble until the status of a
job has it. Nodes are stand-ins; all else is real. Needs root and Debian 12, or PODWRIGHT_KUBE_BIN.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kubernetes.lab import PATIENT, KubeLab, StandIns
from tests.kubernetes.test_ipujobs import World
from tests.kubernetes.test_silent_machines import Troubled
from tests.kubernetes.wide import JOBS, PODS, Audit, Wide
from tests.outer.lab import poll

from bench import Figures, figure
from podwright.client import Client, UnixTransport
from podwright.wire import EventList, EventsRequest, MachineName

COUNT, NODES = 1000, 4
A_SERVER = 250  # of them
EVERY = 5  # IPUJobs to a plain Job
TURNS = 5
#: Seconds more than a plain Job's pod, and seconds until a status has a trouble.
BOUND, SAID = 1.0, 10.0
#: Writes to the API server in a job's life.
WRITES = 15
PLAIN = "/apis/batch/v1/namespaces/default/jobs"


def run(which: str = "") -> Figures:
    """Both parts, or one."""
    if os.geteuid() != 0:
        print("bench ipujobs: needs root", file=sys.stderr)
        return
    if which in ("", "many") or which.isdecimal():
        yield from _many(int(which) if which.isdecimal() else COUNT)
    if which in ("", "troubles"):
        yield from _troubles()


def _many(count: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="podwright-bench-") as name:
        folder = Path(name)
        audit = Audit(folder)
        options = {**PATIENT, "kube-apiserver": audit.options}
        with KubeLab(options=options) as lab, StandIns(lab.http, NODES, lasts=1.0) as nodes:
            jobs = Wide(lab, folder, -(-count // A_SERVER))
            try:
                yield from _at_once(jobs, nodes, audit, count)
            finally:
                jobs.stop()


def _at_once(jobs: Wide, nodes: StandIns, audit: Audit, count: int) -> Figures:
    http = jobs.lab.http
    asked: dict[str, float] = {}

    def put(number: int) -> None:
        jobs.put(f"m{number:04d}")
        if number % EVERY == 0:
            name = f"plain{number:04d}"
            asked[name] = time.time()
            http.ask("POST", PLAIN, _plain_job(name))

    def ended() -> bool:
        if len(nodes.begun) < count:
            return False  # to look at all jobs takes the API server long
        found = [one.get("status") or {} for one in http.ask("GET", JOBS)["items"]]
        states = Counter(one.get("launcherStatus") for one in found)
        return states == {"Completed": count}

    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(count)))
    jobs.until("the end of all", ended)
    took = time.perf_counter() - begin
    ready = _made(jobs)
    plain: list[float] = []
    ours: list[float] = []
    for pod in http.ask("GET", PODS)["items"]:
        bound = nodes.begun[pod["metadata"]["uid"]]
        notes = pod["metadata"].get("annotations") or {}
        if partition := notes.get("podwright.graphcore.ai/partition"):
            ours.append(bound - ready[partition])
        else:
            plain.append(bound - asked[pod["metadata"]["labels"]["job-name"]])
    wrote = [name for _, what, name in audit.written() if what != "leases"]
    most = max(Counter(name.partition("-worker-")[0] for name in wrote).values())
    params = {"jobs": len(ours), "plain_jobs": len(plain)}
    yield figure("ipujobs.many", took, "s", **params)
    yield figure("ipujobs.writes", most, "of the job with most", limit=WRITES, **params)
    for what, of in (("median", statistics.median), ("p95", _p95), ("max", max)):
        a, b = of(plain), of(ours)
        spent = {"plain_s": round(a, 3), "ready_to_bound_s": round(b, 3), **params}
        yield figure(f"ipujobs.bound_{what}", b - a, "s more than plain", limit=BOUND, **spent)


def _plain_job(name: str) -> dict[str, Any]:
    main = {"name": "main", "image": "busybox"}
    template = {"spec": {"containers": [main], "restartPolicy": "Never"}}
    spec = {"template": template, "backoffLimit": 0}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _made(jobs: Wide) -> dict[str, float]:
    """When each partition was ready, by its server's own word."""
    out: dict[str, float] = {}
    for socket in jobs.sockets:
        with Client(UnixTransport(str(socket)), timeout=60.0) as client:
            since = 0
            while (found := client.ask("ListEvents", EventsRequest(since=since), EventList)).events:
                since = found.events[-1].number
                for one in found.events:
                    if one.what == "CreatePartition" and one.outcome == "OK":
                        out[one.about] = one.at
    return out


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _troubles() -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="podwright-bench-") as name,
        KubeLab(options=PATIENT) as lab,
        StandIns(lab.http, 2) as nodes,
    ):
        jobs = Troubled(lab, Path(name))
        try:
            for what, once in (("node", _node), ("drain", _drain), ("partition", _partition)):
                took = [once(jobs, nodes) for _ in range(TURNS)]
                yield figure(
                    f"ipujobs.said_{what}", max(took), "s at most", limit=SAID,
                    median=round(statistics.median(took), 3), turns=TURNS,
                )  # fmt: skip
        finally:
            jobs.stop()


def _node(jobs: Troubled, nodes: StandIns) -> float:
    """Kubernetes says that a node does not answer."""
    _begin(jobs)
    node = jobs.lab.get("pod", "one-worker-0")["spec"]["nodeName"]
    begin = time.perf_counter()
    nodes.say(node, "Unknown")
    took = _until_said(jobs, "Running", f"node {node}", begin)
    nodes.say(node, "True")
    jobs.nothing_is_left()
    return took


def _drain(jobs: Troubled, _: StandIns) -> float:
    """An administrator drained a machine."""
    _begin(jobs)
    machine = jobs.machine_of("one")
    with Client(UnixTransport(str(jobs.socket)), timeout=60.0) as client:
        begin = time.perf_counter()
        client.call("DrainMachine", MachineName(name=machine))
    took = _until_said(jobs, "Running", "drained", begin)
    jobs.good("vipu-admin", "resume", "machine", machine)
    jobs.nothing_is_left()
    return took


def _partition(jobs: Troubled, _: StandIns) -> float:
    """The server says that a partition is in error."""
    _begin(jobs)
    machine = jobs.machine_of("one")
    jobs.machines.signal(machine, signal.SIGKILL)
    _soon(lambda: jobs.is_in_error("one"))
    took = _until_said(jobs, "Failed", machine, time.perf_counter())
    jobs.machines.start(machine)
    _soon(lambda: jobs.is_up(machine))
    jobs.nothing_is_left()
    return took


def _begin(jobs: World) -> None:
    jobs.create("one")
    jobs.is_said("one", "Running", "All instances running")


def _until_said(jobs: World, state: str, words: str, begin: float) -> float:
    """Seconds since then, as a status says it."""

    def said() -> bool:
        status = jobs.lab.http.ask("GET", f"{JOBS}/one").get("status") or {}
        return status.get("launcherStatus") == state and words in status["lastMessage"]

    _soon(said)
    return time.perf_counter() - begin


def _soon(true: Callable[[], bool]) -> None:
    poll("the status", true, seconds=120, every=0.05)
