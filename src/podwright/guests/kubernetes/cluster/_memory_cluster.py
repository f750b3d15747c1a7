"""A cluster in memory: the part of an API server that the operator uses, with the same rules."""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any

from podwright.errors import NotFound, WrongState
from podwright.guests.kubernetes.cluster._kube_interface import Object, Told, priority_values
from podwright.guests.kubernetes.job._crd import API_VERSION, JOB_KIND
from podwright.guests.kubernetes.job._observed_pods import UID_LABEL

_Key = tuple[str, str, str]


class FakeKube:
    """A cluster whose pods stay Pending until a test says what they do (`run`, `end`). writes: all
    changes but events, which stand apart: Kubernetes drops them after a while.

    A pod that was never bound to a node is deleted at once. One that runs is deleted when the test
    says so (`remove_pod`), or at once if `quick`.
    """

    def __init__(self, *, quick: bool = True) -> None:
        self.objects: dict[_Key, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.events: dict[_Key, Object] = {}
        self.quick = quick
        self._numbers = itertools.count(1)
        self._listeners: list[Told] = []

    # -- what the operator uses --------------------------------------------------------------

    async def jobs(self) -> list[Object]:
        """Return all IPUJobs."""
        return [copy.deepcopy(item) for key, item in self.objects.items() if key[0] == JOB_KIND]

    async def job(self, namespace: str, name: str) -> Object | None:
        """Return an IPUJob, or None if there is none."""
        return copy.deepcopy(self.objects.get((JOB_KIND, namespace, name)))

    async def pods(self, namespace: str, uid: str) -> list[Object]:
        """Return the pods of the job with that uid."""
        return [
            copy.deepcopy(pod)
            for key, pod in self.objects.items()
            if key[:2] == ("Pod", namespace) and pod["metadata"]["labels"].get(UID_LABEL) == uid
        ]

    async def nodes(self) -> list[Object]:
        """Return all nodes."""
        return [copy.deepcopy(item) for key, item in self.objects.items() if key[0] == "Node"]

    async def priorities(self) -> dict[str, int]:
        """Return the value of each PriorityClass, and under "" that of the default."""
        return priority_values(
            priority_class
            for key, priority_class in self.objects.items()
            if key[0] == "PriorityClass"
        )

    async def create_pod(self, namespace: str, pod: Object) -> bool:
        """Create a pod. Return False if there is one of that name."""
        key = ("Pod", namespace, pod["metadata"]["name"])
        if key in self.objects:
            return False
        created_pod = copy.deepcopy(dict(pod))
        created_pod["status"] = {"phase": "Pending"}
        self.writes.append(f"create {key[2]}")
        self._put_object(key, created_pod, "ADDED")
        return True

    async def create_item(self, namespace: str, item: Object) -> bool:
        """Create a secret or an event. Return False if there is one of that name."""
        key = (item["kind"], namespace, item["metadata"]["name"])
        if key[0] == "Event":
            return self.events.setdefault(key, item) is item
        if key in self.objects:
            return False
        self.writes.append(f"create {key[0].lower()} {key[2]}")
        self.objects[key] = copy.deepcopy(dict(item))
        return True

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete the pod with that uid. It is not an error if there is none."""
        key = ("Pod", namespace, name)
        found_pod = self.objects.get(key)
        if found_pod is None or found_pod["metadata"]["uid"] != uid:
            return
        self.writes.append(f"delete {name}")
        if self.quick or found_pod["status"]["phase"] != "Running":
            self._drop_object(key)
        else:
            found_pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._put_object(key, found_pod, "MODIFIED")

    async def set_finalizers(
        self, namespace: str, name: str, version: str, finalizers: list[str]
    ) -> None:
        """Set the finalizers of an IPUJob."""
        key, job = self._job_at(namespace, name, version)
        job["metadata"]["finalizers"] = list(finalizers)
        self.writes.append(f"finalizers {name}")
        if job["metadata"].get("deletionTimestamp") and not finalizers:
            self._drop_object(key)
        else:
            self._put_object(key, job, "MODIFIED")

    async def set_status(self, namespace: str, name: str, version: str, status: Object) -> None:
        """Replace the whole status of an IPUJob."""
        key, job = self._job_at(namespace, name, version)
        job["status"] = copy.deepcopy(dict(status))
        self.writes.append(f"status {name}: {status['launcherStatus']}, {status['lastMessage']}")
        self._put_object(key, job, "MODIFIED")

    async def watch(self, on_event: Told) -> None:
        """Call `on_event` for all that exists at the start, and then for every change, until
        cancelled.
        """
        for key, item in list(self.objects.items()):
            on_event(key[0], "", copy.deepcopy(item))
        self._listeners.append(on_event)
        try:
            await asyncio.Event().wait()
        finally:
            self._listeners.remove(on_event)

    # -- what users, kubelets and nodes do ---------------------------------------------------

    def create(self, spec: Object, name: str = "job", namespace: str = "team") -> str:
        """Create an IPUJob as a user does, and return its uid."""
        job: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": JOB_KIND,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": f"2026-01-01T00:00:{next(self._numbers) % 60:02d}Z",
            },
            "spec": copy.deepcopy(dict(spec)),
        }
        self._put_object((JOB_KIND, namespace, name), job, "ADDED")
        return str(job["metadata"]["uid"])

    def change(self, spec: Object, name: str = "job", namespace: str = "team") -> None:
        """Change some fields of an IPUJob's spec."""
        key = (JOB_KIND, namespace, name)
        self.objects[key]["spec"].update(copy.deepcopy(dict(spec)))
        self._put_object(key, self.objects[key], "MODIFIED")

    def delete(self, name: str = "job", namespace: str = "team", *, forced: bool = False) -> None:
        """Delete an IPUJob. forced: somebody removes its finalizers."""
        key = (JOB_KIND, namespace, name)
        job = self.objects[key]
        if forced or not job["metadata"].get("finalizers"):
            self._drop_object(key)
            return
        job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._put_object(key, job, "MODIFIED")

    def run(self, name: str, namespace: str = "team", node: str = "node0") -> None:
        """Run a pod, as a kubelet does."""
        key = ("Pod", namespace, name)
        self.objects[key]["spec"]["nodeName"] = node
        self.objects[key]["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
        self._put_object(key, self.objects[key], "MODIFIED")

    def end(self, name: str, code: int = 0, namespace: str = "team") -> None:
        """End a pod's program with an exit code."""
        key = ("Pod", namespace, name)
        self.objects[key]["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}],
        }
        self._put_object(key, self.objects[key], "MODIFIED")

    def evict(self, name: str, namespace: str = "team") -> None:
        """Delete a pod as Kubernetes does whose node does not answer: it stays until that does."""
        key = ("Pod", namespace, name)
        self.objects[key]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._put_object(key, self.objects[key], "MODIFIED")

    def remove_pod(self, name: str, namespace: str = "team") -> None:
        """Remove a pod from the cluster."""
        self._drop_object(("Pod", namespace, name))

    def node(self, name: str, ready: str = "True") -> None:
        """Set a node's Ready condition: True, False or Unknown."""
        item = self.objects.get(("Node", "", name)) or {"metadata": {"name": name}}
        item["status"] = {"conditions": [{"type": "Ready", "status": ready}]}
        self._put_object(("Node", "", name), item, "MODIFIED")

    def priority(self, name: str, value: int, *, default: bool = False) -> None:
        """Create or change a PriorityClass."""
        priority_class = {"metadata": {"name": name}, "value": value, "globalDefault": default}
        self.objects["PriorityClass", "", name] = priority_class

    def names(self, kind: str = "Pod") -> list[str]:
        """Return the names of all objects of a kind."""
        return sorted(key[2] for key in self.objects if key[0] == kind)

    # -- inside ------------------------------------------------------------------------------

    def _job_at(self, namespace: str, name: str, version: str) -> tuple[_Key, dict[str, Any]]:
        key = (JOB_KIND, namespace, name)
        if key not in self.objects:
            raise NotFound(f"there is no IPUJob {namespace}/{name}")
        if self.objects[key]["metadata"]["resourceVersion"] != version:
            raise WrongState(f"IPUJob {namespace}/{name} was changed meanwhile")
        return key, self.objects[key]

    def _put_object(self, object_key: _Key, item: dict[str, Any], event: str) -> None:
        number = next(self._numbers)
        item["metadata"].setdefault("uid", f"uid-{number}")
        item["metadata"]["resourceVersion"] = str(number)
        self.objects[object_key] = item
        self._notify_listeners(object_key, item, event)

    def _drop_object(self, object_key: _Key) -> None:
        self._notify_listeners(object_key, self.objects.pop(object_key), "DELETED")

    def _notify_listeners(self, object_key: _Key, item: dict[str, Any], event: str) -> None:
        for listener in list(self._listeners):
            listener(object_key[0], event, copy.deepcopy(item))
