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
from podwright.guests.kubernetes.cluster._api_request_queue import NOW, RequestQueue, ranked
from podwright.guests.kubernetes.cluster._kube_interface import Object, Told, priority_values
from podwright.guests.kubernetes.cluster._kube_watch import KindWatch
from podwright.guests.kubernetes.job._crd import JOB_API_GROUP, JOB_KIND, JOB_PLURAL, VERSION
from podwright.guests.kubernetes.job._observed_pods import UID_LABEL

_MERGE: Final = "application/merge-patch+json"
_JOBS_PATH: Final = f"/apis/{JOB_API_GROUP}/{VERSION}"
_PAGE_SIZE: Final = 500
_CALL_TIMEOUT_S: Final = 30.0
#: Requests at a time. More would wait in the API server, where urgent ones cannot go first.
_MAX_RUNNING_CALLS: Final = 16
#: Seconds to connect for a watch, and between two pieces of it: the server ends it sooner.
_WATCH_TIMEOUTS: Final = aiohttp.ClientTimeout(connect=10.0, sock_connect=10.0, sock_read=90.0)


class KubeApi:
    """The API server of a cluster. Made by `connect`.

    namespace: the only one to look at; empty: all.
    """

    def __init__(self, api: client.ApiClient, namespace: str = "") -> None:
        self.api = api
        self.namespace = namespace
        self.watches: list[KindWatch] = []
        self.writes = 0  #: the number of requested changes
        #: Why the last call had no answer.
        self.problem = "the API server has not answered yet"
        self._queue = RequestQueue(_MAX_RUNNING_CALLS)

    async def jobs(self) -> list[Object]:
        """Return all IPUJobs."""
        return await self._list_objects(_JOBS_PATH, JOB_PLURAL)

    async def job(self, namespace: str, name: str) -> Object | None:
        """Return an IPUJob, or None if there is none."""
        try:
            return await self._call("GET", _job_path(namespace, name))
        except NotFound:
            return None

    async def pods(self, namespace: str, uid: str) -> list[Object]:
        """Return the pods of the job with that uid."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods"
        return await self._list_all_pages(path, labelSelector=f"{UID_LABEL}={uid}")

    async def nodes(self) -> list[Object]:
        """Return all nodes."""
        return await self._list_all_pages("/api/v1/nodes")

    async def priorities(self) -> dict[str, int]:
        """Return the value of each PriorityClass, and under "" that of the default. Raises Denied
        where the operator lacks the right.
        """
        classes = await self._list_all_pages("/apis/scheduling.k8s.io/v1/priorityclasses")
        return priority_values(classes)

    async def create_pod(self, namespace: str, pod: Object) -> bool:
        """Create a pod. Return False if there is one of that name."""
        return await self._create_object(f"/api/v1/namespaces/{quote(namespace)}/pods", pod)

    async def create_item(self, namespace: str, item: Object) -> bool:
        """Create a secret or an event. Return False if there is one of that name.

        No object of these kinds is ever read.
        """
        kind = f"{item['kind'].lower()}s"
        return await self._create_object(f"/api/v1/namespaces/{quote(namespace)}/{kind}", item)

    async def _create_object(self, path: str, item: Object) -> bool:
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
        patch = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        await self._call("PATCH", _job_path(namespace, name), patch)

    async def set_status(self, namespace: str, name: str, version: str, status: Object) -> None:
        """Replace the whole status of an IPUJob."""
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        await self._call("PATCH", f"{_job_path(namespace, name)}/status", patch)

    async def cluster_uid(self) -> str:
        """Return what identifies this cluster for good: the uid of its namespace kube-system."""
        system = await self._call("GET", "/api/v1/namespaces/kube-system")
        return str(system["metadata"]["uid"])

    async def lease(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a Lease. Raises NotFound."""
        with ranked(NOW):
            return await self._call("GET", f"{_leases_path(namespace)}/{quote(name)}")

    async def put_lease(self, namespace: str, name: str, body: Object, *, new: bool) -> None:
        """Write a Lease. Raises WrongState where somebody else wrote it first."""
        leases_path = _leases_path(namespace)
        with ranked(NOW):
            await self._call(
                "POST" if new else "PUT",
                leases_path if new else f"{leases_path}/{quote(name)}",
                body,
            )

    async def watch(self, on_event: Told) -> None:
        """Call `on_event` for all that exists at the start, and then for every change, until
        cancelled.
        """
        namespace_path = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        watched_kinds: tuple[tuple[str, str, dict[str, str]], ...] = (
            (JOB_KIND, f"{_JOBS_PATH}{namespace_path}/{JOB_PLURAL}", {}),
            ("Pod", f"/api/v1{namespace_path}/pods", {"labelSelector": UID_LABEL}),
            ("Node", "/api/v1/nodes", {}),
        )
        self.watches = [
            KindWatch(self, kind, list_path, query, on_event, time.monotonic)
            for kind, list_path, query in watched_kinds
        ]
        async with asyncio.TaskGroup() as task_group:
            for kind_watch in self.watches:
                task_group.create_task(kind_watch.run())

    async def listed(self, path: str, query: Mapping[str, Any]) -> tuple[list[Object], str]:
        """Return all objects, and the version of the list."""
        items: list[Object] = []
        page_query = {**query, "limit": _PAGE_SIZE}
        while True:
            page = await self._call("GET", path, query=page_query)
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion") or "")
            page_query["continue"] = metadata["continue"]

    async def stream(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Return the body of a watch in pieces, as they arrive. The first piece is empty."""
        operation = f"watch {path}"
        try:
            response = await self._send_request("GET", path, None, query, _WATCH_TIMEOUTS)
            with contextlib.closing(response):
                if response.status != 200:
                    raise _api_error(response.status, await response.text(), operation)
                yield b""
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"the API server does not answer: {error!r}", operation=operation
            ) from None

    async def _list_objects(self, api_path: str, plural: str) -> list[Object]:
        namespace_path = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        return await self._list_all_pages(f"{api_path}{namespace_path}/{plural}")

    async def _list_all_pages(self, path: str, **query: Any) -> list[Object]:
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
        operation = f"{method} {path}"
        try:
            async with self._queue.turn():
                response = await self._send_request(method, path, body, query, _CALL_TIMEOUT_S)
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.problem = f"the API server does not answer: {error!r}"
            raise Unavailable(self.problem, operation=operation) from None
        self.problem = ""
        if 200 <= response.status < 300:
            reply: dict[str, Any] = json.loads(text)
            return reply
        raise _api_error(response.status, text, operation)

    async def _send_request(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, Any] | None,
        timeout: float | aiohttp.ClientTimeout,
    ) -> Any:
        """Return the answer before its body is read. timeout: seconds in all, or for each part."""
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
            _request_timeout=timeout,
        )


@contextlib.asynccontextmanager
async def connect(kubeconfig: str = "", namespace: str = "") -> AsyncIterator[KubeApi]:
    """Connect to the API server of the cluster that this runs in, or to that of a kubeconfig.

    Raises InvalidRequest where there is neither.
    """
    client_configuration = client.Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and not kubeconfig:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=client_configuration
            )
        else:
            await config.load_kube_config(
                config_file=kubeconfig or None, client_configuration=client_configuration
            )
    except (config.ConfigException, OSError) as error:
        raise InvalidRequest(
            f"no cluster is known here: {error}", would_work="--kubeconfig FILE, or KUBECONFIG"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        config_path = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise InvalidRequest(
            f"{config_path} is not a kubeconfig: {' '.join(str(error).split())[:200]}",
            would_work="A file that `kubectl config view` reads: --kubeconfig FILE, or KUBECONFIG",
        ) from None
    async with client.ApiClient(configuration=client_configuration) as api_client:
        yield KubeApi(api_client, namespace)


def _job_path(namespace: str, name: str) -> str:
    return f"{_JOBS_PATH}/namespaces/{quote(namespace)}/{JOB_PLURAL}/{quote(name)}"


def _leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"


def _api_error(http_status: int, response_text: str, operation: str) -> PodwrightError:
    try:
        message = str(json.loads(response_text).get("message") or response_text)[:300]
    except ValueError:
        message = response_text[:300]
    error_type: type[PodwrightError] = Unavailable
    if http_status == 404:
        error_type = NotFound
    elif http_status == 409:
        error_type = WrongState
    elif http_status in (401, 403):
        error_type = Denied
    elif http_status in (400, 422):
        error_type = InvalidRequest
    return error_type(f"the API server says {http_status}: {message}", operation=operation)
