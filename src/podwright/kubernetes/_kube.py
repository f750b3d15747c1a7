"""The seam to Kubernetes: what the operator asks of the API server, and what it is told.

Objects are the API's own, as parsed JSON. All raise errors.PodwrightError where the API server
does not answer or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Object = Mapping[str, Any]
#: Called with what changed: its kind (`IPUJob`, `Pod`, `Node`), the event, the object.
Told = Callable[[str, str, Object], None]


class Kube(Protocol):
    """One cluster. `version`s are resourceVersions: a change of something newer is refused
    (errors.WrongState), and the caller looks again."""

    async def jobs(self) -> list[Object]:
        """All IPUJobs."""
        ...

    async def job(self, namespace: str, name: str) -> Object | None:
        """One of them; None: there is none."""
        ...

    async def pods(self, namespace: str, uid: str) -> list[Object]:
        """The pods of the job with that uid."""
        ...

    async def nodes(self) -> list[Object]:
        """All nodes."""
        ...

    async def create_pod(self, namespace: str, pod: Object) -> bool:
        """False: there is one of that name."""
        ...

    async def create_item(self, namespace: str, item: Object) -> bool:
        """A secret, an account, a role or its binding. False: there is one of that name.

        None is ever read."""
        ...

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """The pod with that uid; that there is none is fine, too."""
        ...

    async def set_finalizers(
        self, namespace: str, name: str, version: str, finalizers: list[str]
    ) -> None:
        """An IPUJob's."""
        ...

    async def set_status(self, namespace: str, name: str, version: str, status: Object) -> None:
        """An IPUJob's, whole."""
        ...

    async def watch(self, told: Told) -> None:
        """Tell of every change, and of all that there is at the start, until it is cancelled."""
        ...
