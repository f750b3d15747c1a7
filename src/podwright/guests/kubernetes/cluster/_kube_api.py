"""The API server itself, by kubernetes_asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import yaml
from kubernetes_asyncio import client, config

from podwright.errors import (
    Denied,
    InvalidRequest,
    NotFound,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.guests.kubernetes.cluster._kube import Object, Told, priority_values
from podwright.guests.kubernetes.cluster._kube_watch import KindWatch
from podwright.guests.kubernetes.cluster._request_queue import NOW, RequestQueue, ranked
from podwright.guests.kubernetes.job._crd import GROUP, KIND, PLURAL, VERSION
from podwright.guests.kubernetes.job._sightings import UID_LABEL

_MERGE: Final = "application/merge-patch+json"
_JOBS: Final = f"/apis/{GROUP}/{VERSION}"
_PAGE: Final = 500
_SECONDS: Final = 30.0
#: Requests at a time. More would wait in the API server, where urgent ones cannot go first.
_AT_ONCE: Final = 16
#: Seconds to connect for a watch, and between two pieces of it: the server ends it sooner.
_WATCH_LIMITS: Final = aiohttp.ClientTimeout(connect=10.0, sock_connect=10.0, sock_read=90.0)


class KubeApi:
    """The API server of a cluster. Made by `connect`.

    namespace: the only one to look at; empty: all.
    """

    def __init__(self, api: client.ApiClient, namespace: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self.watches: list[KindWatch] = []
        self.writes = 0  #: the number of requested changes
        self._queue = RequestQueue(_AT_ONCE)

    async def jobs(self) -> list[Object]:
        """Return all IPUJobs."""
        return await self._list(_JOBS, PLURAL)

    async def job(self, namespace: str, name: str) -> Object | None:
        """Return an IPUJob, or None if there is none."""
        try:
            return await self._call("GET", _job(namespace, name))
        except NotFound:
            return None

    async def pods(self, namespace: str, uid: str) -> list[Object]:
        """Return the pods of the job with that uid."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods"
        return await self._pages(path, labelSelector=f"{UID_LABEL}={uid}")

    async def nodes(self) -> list[Object]:
        """Return all nodes."""
        return await self._pages("/api/v1/nodes")

    async def priorities(self) -> dict[str, int]:
        """Return the value of each PriorityClass, and under "" that of the default. Raises Denied
        where the operator lacks the right.
        """
        classes = await self._pages("/apis/scheduling.k8s.io/v1/priorityclasses")
        return priority_values(classes)

    async def create_pod(self, namespace: str, pod: Object) -> bool:
        """Create a pod. Return False if there is one of that name."""
        return await self._create(f"/api/v1/namespaces/{quote(namespace)}/pods", pod)

    async def create_item(self, namespace: str, item: Object) -> bool:
        """Create a secret, an event, an account, a role or its binding. Return False if there is
        one of that name.

        No object of these kinds is ever read.
        """
        version, kind = str(item["apiVersion"]), f"{item['kind'].lower()}s"
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return await self._create(f"{base}/namespaces/{quote(namespace)}/{kind}", item)

    async def _create(self, path: str, item: Object) -> bool:
        try:
            await self._call("POST", path, item)
        except WrongState:
            return False
        return True

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete the pod with that uid. It is not an error if there is none."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
        with contextlib.suppress(NotFound, WrongState):
            await self._call("DELETE", path, {"preconditions": {"uid": uid}})

    async def set_finalizers(
        self, namespace: str, name: str, version: str, finalizers: list[str]
    ) -> None:
        """Set the finalizers of an IPUJob."""
        body = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        await self._call("PATCH", _job(namespace, name), body)

    async def set_status(self, namespace: str, name: str, version: str, status: Object) -> None:
        """Replace the whole status of an IPUJob."""
        body = {"metadata": {"resourceVersion": version}, "status": status}
        await self._call("PATCH", f"{_job(namespace, name)}/status", body)

    async def cluster_uid(self) -> str:
        """Return what identifies this cluster for good: the uid of its namespace kube-system."""
        namespace = await self._call("GET", "/api/v1/namespaces/kube-system")
        return str(namespace["metadata"]["uid"])

    async def lease(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a Lease. Raises NotFound."""
        with ranked(NOW):
            return await self._call("GET", f"{_leases(namespace)}/{quote(name)}")

    async def put_lease(self, namespace: str, name: str, body: Object, *, new: bool) -> None:
        """Write a Lease. Raises WrongState where somebody else wrote it first."""
        path = _leases(namespace)
        with ranked(NOW):
            await self._call(
                "POST" if new else "PUT", path if new else f"{path}/{quote(name)}", body
            )

    async def watch(self, on_event: Told) -> None:
        """Call `on_event` for all that exists at the start, and then for every change, until
        cancelled.
        """
        where = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        kinds: tuple[tuple[str, str, dict[str, str]], ...] = (
            (KIND, f"{_JOBS}{where}/{PLURAL}", {}),
            ("Pod", f"/api/v1{where}/pods", {"labelSelector": UID_LABEL}),
            ("Node", "/api/v1/nodes", {}),
        )
        self.watches = [
            KindWatch(self, kind, path, query, on_event, time.monotonic)
            for kind, path, query in kinds
        ]
        async with asyncio.TaskGroup() as group:
            for each in self.watches:
                group.create_task(each.run())

    async def listed(self, path: str, query: Mapping[str, Any]) -> tuple[list[Object], str]:
        """Return all objects, and the version of the list."""
        out: list[Object] = []
        selected = {**query, "limit": _PAGE}
        while True:
            page = await self._call("GET", path, query=selected)
            out += page.get("items") or ()
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return out, str(meta.get("resourceVersion") or "")
            selected["continue"] = meta["continue"]

    async def stream(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Return the body of a watch in pieces, as they arrive. The first piece is empty."""
        action = f"watch {path}"
        try:
            answer = await self._send("GET", path, None, query, _WATCH_LIMITS)
            with contextlib.closing(answer):
                if answer.status != 200:
                    raise _refusal(answer.status, await answer.text(), action)
                yield b""
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"the API server does not answer: {error!r}", operation=action
            ) from None

    async def _list(self, base: str, plural: str) -> list[Object]:
        where = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        return await self._pages(f"{base}{where}/{plural}")

    async def _pages(self, path: str, **query: Any) -> list[Object]:
        return (await self.listed(path, query))[0]

    async def _call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        if method != "GET":
            self.writes += 1
        action = f"{method} {path}"
        try:
            async with self._queue.turn():
                answer = await self._send(method, path, body, query, _SECONDS)
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"the API server does not answer: {error!r}", operation=action
            ) from None
        if 200 <= answer.status < 300:
            reply: dict[str, Any] = json.loads(text)
            return reply
        raise _refusal(answer.status, text, action)

    async def _send(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, Any] | None,
        limit: float | aiohttp.ClientTimeout,
    ) -> Any:
        """Return the answer before its body is read. limit: seconds in all, or for each part."""
        headers = {"Accept": "application/json"}
        headers["Content-Type"] = _MERGE if method == "PATCH" else "application/json"
        return await self.api.call_api(
            path,
            method,
            header_params=headers,
            query_params=list((query or {}).items()),
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=limit,
        )


@contextlib.asynccontextmanager
async def connect(kubeconfig: str = "", namespace: str = "") -> AsyncIterator[KubeApi]:
    """Connect to the API server of the cluster that this runs in, or to that of a kubeconfig.

    Raises InvalidRequest where there is neither.
    """
    configuration = client.Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and not kubeconfig:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            await config.load_kube_config(
                config_file=kubeconfig or None, client_configuration=configuration
            )
    except (config.ConfigException, OSError) as error:
        raise InvalidRequest(
            f"no cluster is known here: {error}", would_work="--kubeconfig FILE, or KUBECONFIG"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise InvalidRequest(
            f"{where} is not a kubeconfig: {' '.join(str(error).split())[:200]}",
            would_work="A file that `kubectl config view` reads: --kubeconfig FILE, or KUBECONFIG",
        ) from None
    async with client.ApiClient(configuration=configuration) as api:
        yield KubeApi(api, namespace)


def _job(namespace: str, name: str) -> str:
    return f"{_JOBS}/namespaces/{quote(namespace)}/{PLURAL}/{quote(name)}"


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"


def _refusal(status: int, text: str, action: str) -> PodwrightError:
    try:
        message = str(json.loads(text).get("message") or text)[:300]
    except ValueError:
        message = text[:300]
    kind: type[PodwrightError] = Unavailable
    if status == 404:
        kind = NotFound
    elif status == 409:
        kind = WrongState
    elif status in (401, 403):
        kind = Denied
    elif status in (400, 422):
        kind = InvalidRequest
    return kind(f"the API server says {status}: {message}", operation=action)
