"""The interface to Kubernetes: what the operator asks of the API server, and the events that it
gets.

Objects are the API's own, as parsed JSON. All methods raise errors.PodwrightError where the API
server does not answer or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

Object = Mapping[str, Any]
#: Called for each change with the kind (`IPUJob`, `Pod`, `Node`), the event and the object.
Told = Callable[[str, str, Object], None]


def priority_values(priority_classes: Iterable[Object]) -> dict[str, int]:
    """Return the value of each PriorityClass by its name, and under "" that of the default: of the
    class with `globalDefault`, or 0.
    """
    value_by_name = {"": 0}
    for priority_class in priority_classes:
        value = int(priority_class.get("value") or 0)
        value_by_name[priority_class["metadata"]["name"]] = value
        if priority_class.get("globalDefault"):
            value_by_name[""] = value
    return value_by_name


class Kube(Protocol):
    """One cluster.

    `version` is a resourceVersion: a change is refused (errors.WrongState) if the object has a
    newer one, and the caller reads it again.
    """

    async def jobs(self) -> list[Object]:
        """Return all IPUJobs."""
        ...

    async def job(self, namespace: str, name: str) -> Object | None:
        """Return an IPUJob, or None if there is none."""
        ...

    async def pods(self, namespace: str, uid: str) -> list[Object]:
        """Return the pods of the job with that uid."""
        ...

    async def nodes(self) -> list[Object]:
        """Return all nodes."""
        ...

    async def priorities(self) -> dict[str, int]:
        """Return the value of each PriorityClass, and under "" that of the default. Raises Denied
        where the operator lacks the right.
        """
        ...

    async def create_pod(self, namespace: str, pod: Object) -> bool:
        """Create a pod. Return False if there is one of that name."""
        ...

    async def create_item(self, namespace: str, item: Object) -> bool:
        """Create a secret or an event. Return False if there is one of that name.

        No object of these kinds is ever read.
        """
        ...

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete the pod with that uid. It is not an error if there is none."""
        ...

    async def set_finalizers(
        self, namespace: str, name: str, version: str, finalizers: list[str]
    ) -> None:
        """Set the finalizers of an IPUJob."""
        ...

    async def set_status(self, namespace: str, name: str, version: str, status: Object) -> None:
        """Replace the whole status of an IPUJob."""
        ...

    async def watch(self, on_event: Told) -> None:
        """Call `on_event` for all that exists at the start, and then for every change, until
        cancelled.
        """
        ...
