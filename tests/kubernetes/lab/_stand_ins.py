"""Nodes that are only names, and one stand-in for all of their kubelets.

The real scheduler binds pods to them. The stand-in reports that the pods run, until a test decides
how they end; for benchmarks, each succeeds after a while. It confirms the deletion of a pod, on a
node that is Unknown only once the node answers again. The plane must not miss heartbeats: PATIENT
are the options for that.
"""

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Mapping
from typing import Final, Self

from ._http import KubeHttp, Refused, Unanswered
from ._objects import Object

PATIENT: Final[Mapping[str, Mapping[str, str]]] = {
    "kube-controller-manager": {"node-monitor-grace-period": "100h"}
}
_BOUND: Final = "/api/v1/pods?fieldSelector=spec.nodeName!="
_PAUSE: Final = 0.3


class StandIns:
    """`with StandIns(lab.http, 4) as nodes: nodes.end("job-worker-0")`. They are called s1, s2, …

    lasts: seconds after which each pod ends by itself; None: it does not.
    """

    def __init__(self, http: KubeHttp, count: int, *, lasts: float | None = None) -> None:
        self._http, self._lasts = http, lasts
        self.names = [f"s{number}" for number in range(1, count + 1)]
        self.begun: dict[str, float] = {}  #: pods by uid, when each was first seen on a node
        self._due: list[tuple[float, int, str, Object]] = []
        self._asked: set[tuple[str, str]] = set()
        self._silent: set[str] = set()
        self._numbers = itertools.count()
        self._news = threading.Condition()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._look, self._work)]

    def __enter__(self) -> Self:
        for name in self.names:
            labels = {"kubernetes.io/hostname": name}
            item = {"apiVersion": "v1", "kind": "Node"}
            self._http.ask(
                "POST", "/api/v1/nodes", {**item, "metadata": {"name": name, "labels": labels}}
            )
            self.say(name, "True")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._news:
            self._news.notify()
        while self._threads[0].is_alive():
            self._http.end_watches()
            self._threads[0].join(0.1)
        self._threads[1].join()
        for name in self.names:
            self._http.ask("DELETE", f"/api/v1/nodes/{name}")

    def say(self, node: str, ready: str) -> None:
        """Report whether a node is ready: "True", "False", or "Unknown" if it does not answer."""
        (self._silent.add if ready == "Unknown" else self._silent.discard)(node)
        room = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
        said = {"type": "Ready", "status": ready, "reason": "StandIn", "message": ""}
        status = {"capacity": room, "allocatable": room, "conditions": [said]}
        self._http.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": status})

    def end(self, pod: str, code: int = 0, namespace: str = "default") -> None:
        """Report that a pod's program has ended."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._set(self._http.ask("GET", path), "Failed" if code else "Succeeded", code)

    def _set(self, pod: Object, phase: str, code: int = 0) -> None:
        meta = pod["metadata"]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state: Object = {"running": {"startedAt": now}}
        if phase != "Running":
            state = {"terminated": {"exitCode": code, "finishedAt": now}}
        one = {"image": "i", "imageID": "", "restartCount": 0, "ready": phase == "Running"}
        names = [container["name"] for container in pod["spec"]["containers"]]
        status = {
            "phase": phase,
            "startTime": now,
            "containerStatuses": [{"name": name, "state": state, **one} for name in names],
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        self._http.ask("PATCH", path, {"metadata": {"uid": meta["uid"]}, "status": status})

    # The two threads: one hears of pods, one does what is to be done for them

    def _look(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(Unanswered, Refused):
                found = self._http.ask("GET", _BOUND)
                for pod in found["items"]:
                    self._heard(pod)
                since = found["metadata"]["resourceVersion"]
                for event in self._http.watch(f"{_BOUND}&watch=1&resourceVersion={since}"):
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self._heard(event["object"])
                    if event["type"] == "ERROR" or self._over.is_set():
                        break
            self._over.wait(_PAUSE)

    def _heard(self, pod: Object) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase")
        self.begun.setdefault(meta["uid"], time.time())
        if meta.get("deletionTimestamp"):
            self._at(0.0, "goes", pod)
        elif phase == "Pending":
            self._at(0.0, "Running", pod)
        elif phase == "Running" and self._lasts is not None:
            self._at(self._lasts, "Succeeded", pod)

    def _at(self, seconds: float, what: str, pod: Object) -> None:
        with self._news:
            key = (what, pod["metadata"]["uid"])
            if key not in self._asked:
                self._asked.add(key)
                at = time.monotonic() + seconds
                heapq.heappush(self._due, (at, next(self._numbers), what, pod))
                self._news.notify()

    def _work(self) -> None:
        while not self._over.is_set():
            with self._news:
                now = time.monotonic()
                if not self._due or self._due[0][0] > now:
                    self._news.wait(self._due[0][0] - now if self._due else None)
                    continue
                _, _, what, pod = heapq.heappop(self._due)
            try:
                if what == "goes" and pod["spec"]["nodeName"] in self._silent:
                    self._asked.discard((what, pod["metadata"]["uid"]))
                    self._at(_PAUSE, what, pod)
                elif what == "goes":
                    self._goes(pod)
                else:
                    self._set(pod, what)
            except Refused:
                continue  # it is gone, or another by now
            except Unanswered:
                self._asked.discard((what, pod["metadata"]["uid"]))
                self._at(_PAUSE, what, pod)

    def _goes(self, pod: Object) -> None:
        meta = pod["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self._http.ask("DELETE", path, body)
