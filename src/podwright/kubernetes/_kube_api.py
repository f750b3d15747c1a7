"""The API server itself: kopf watches it, kubernetes_asyncio changes it.

kopf's own handlers would write annotations at every step; its plain events write nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import kopf
from kubernetes_asyncio import client, config

from podwright.errors import (
    Denied,
    InvalidRequest,
    NotFound,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.kubernetes._crd import GROUP, KIND, PLURAL, VERSION
from podwright.kubernetes._kube import Object, Told
from podwright.kubernetes._request_queue import NOW, RequestQueue, ranked
from podwright.kubernetes._sightings import UID_LABEL

_MERGE: Final = "application/merge-patch+json"
_JOBS: Final = f"/apis/{GROUP}/{VERSION}"
_PAGE: Final = 500
_SECONDS: Final = 30.0
#: Requests at a time. More would wait in the API server, where nobody can be let past.
_AT_ONCE: Final = 16
#: kopf asks who we are, for its own peering, which is off; and an image need not know our account.
_IDENTITY: Final[Any] = "podwright"


class KubeApi:
    """namespace: only of this one; empty: of all. inside: this runs in the cluster, and is known
    by its service account. Made by `connect`."""

    def __init__(self, api: client.ApiClient, namespace: str = "", *, inside: bool = False) -> None:
        self.api, self.inside = api, inside
        self.namespace = namespace
        self.writes = 0  #: changes that were asked for
        self._queue = RequestQueue(_AT_ONCE)

    async def jobs(self) -> list[Object]:
        """All IPUJobs."""
        return await self._list(_JOBS, PLURAL)

    async def job(self, namespace: str, name: str) -> Object | None:
        """One of them; None: there is none."""
        try:
            return await self._call("GET", _job(namespace, name))
        except NotFound:
            return None

    async def pods(self, namespace: str, uid: str) -> list[Object]:
        """The pods of the job with that uid."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods"
        return await self._pages(path, labelSelector=f"{UID_LABEL}={uid}")

    async def nodes(self) -> list[Object]:
        """All nodes."""
        return await self._pages("/api/v1/nodes")

    async def create_pod(self, namespace: str, pod: Object) -> bool:
        """False: there is one of that name."""
        return await self._create(f"/api/v1/namespaces/{quote(namespace)}/pods", pod)

    async def create_item(self, namespace: str, item: Object) -> bool:
        """A secret, an account, a role or its binding. False: there is one of that name.

        None is ever read."""
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
        """The pod with that uid; that there is none is fine, too."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
        with contextlib.suppress(NotFound, WrongState):
            await self._call("DELETE", path, {"preconditions": {"uid": uid}})

    async def set_finalizers(
        self, namespace: str, name: str, version: str, finalizers: list[str]
    ) -> None:
        """An IPUJob's."""
        body = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        await self._call("PATCH", _job(namespace, name), body)

    async def set_status(self, namespace: str, name: str, version: str, status: Object) -> None:
        """An IPUJob's, whole."""
        body = {"metadata": {"resourceVersion": version}, "status": status}
        await self._call("PATCH", f"{_job(namespace, name)}/status", body)

    async def cluster_uid(self) -> str:
        """What names this cluster for good: the uid of its namespace kube-system."""
        found = await self._call("GET", "/api/v1/namespaces/kube-system")
        return str(found["metadata"]["uid"])

    async def lease(self, namespace: str, name: str) -> dict[str, Any]:
        """A Lease. Raises NotFound."""
        with ranked(NOW):
            return await self._call("GET", f"{_leases(namespace)}/{quote(name)}")

    async def put_lease(self, namespace: str, name: str, body: Object, *, new: bool) -> None:
        """Write a Lease. Raises WrongState where somebody else did."""
        at = _leases(namespace)
        with ranked(NOW):
            await self._call("POST" if new else "PUT", at if new else f"{at}/{quote(name)}", body)

    async def watch(self, told: Told) -> None:
        """Tell of every change, and of all that there is at the start, until it is cancelled."""
        registry = kopf.OperatorRegistry()

        async def login(**said: Any) -> kopf.ConnectionInfo | None:
            if not self.inside:
                return kopf.login_with_kubeconfig(**said)
            # kopf asks for the name kubernetes.default.svc; a cluster need have no DNS.
            found = kopf.login_with_service_account(**said)
            return found and replace(found, server=str(self.api.configuration.host))

        kopf.on.login(registry=registry)(login)

        here = asyncio.get_running_loop()

        def tell(kind: str, *resource: str, **only: Any) -> None:
            async def event(event: Any, **_: Any) -> None:
                with contextlib.suppress(RuntimeError):  # we have ended
                    here.call_soon_threadsafe(told, kind, event["type"] or "", event["object"])

            kopf.on.event(*resource, registry=registry, **only)(event)

        tell(KIND, GROUP, VERSION, PLURAL)
        tell("Pod", "", "v1", "pods", labels={UID_LABEL: kopf.PRESENT})
        tell("Node", "", "v1", "nodes")
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        stop = threading.Event()

        def run() -> None:
            work = kopf.operator(
                registry=registry,
                settings=settings,
                identity=_IDENTITY,
                standalone=True,
                clusterwide=not self.namespace,
                namespaces=[self.namespace] if self.namespace else [],
                stop_flag=stop,
            )
            asyncio.run(work)

        # In a thread of its own, as kopf wants it beside others: signals stay ours.
        thread = asyncio.create_task(asyncio.to_thread(run))
        try:
            await asyncio.shield(thread)
        finally:
            stop.set()
            await asyncio.wait({thread})
        raise Unavailable("the watch of the API server ended")

    async def _list(self, base: str, plural: str) -> list[Object]:
        where = f"/namespaces/{quote(self.namespace)}" if self.namespace else ""
        return await self._pages(f"{base}{where}/{plural}")

    async def _pages(self, path: str, **query: Any) -> list[Object]:
        out: list[Object] = []
        query["limit"] = _PAGE
        while True:
            page = await self._call("GET", path, query=query)
            out += page.get("items") or ()
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return out
            query["continue"] = more

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
        headers = {"Accept": "application/json"}
        headers["Content-Type"] = _MERGE if method == "PATCH" else "application/json"
        try:
            async with self._queue.turn():
                answer = await self.api.call_api(
                    path,
                    method,
                    header_params=headers,
                    query_params=list((query or {}).items()),
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=_SECONDS,
                )
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the API server does not answer: {error!r}", asked=action) from None
        if 200 <= answer.status < 300:
            found: dict[str, Any] = json.loads(text)
            return found
        raise _refusal(answer.status, text, action)


@contextlib.asynccontextmanager
async def connect(kubeconfig: str = "", namespace: str = "") -> AsyncIterator[KubeApi]:
    """The API server: of the cluster that this runs in, or as a kubeconfig says.

    Raises InvalidRequest where neither is there.
    """
    if kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig  # kopf reads it there
    logging.getLogger("kopf").setLevel(logging.ERROR)
    configuration = client.Configuration()
    try:
        inside = "KUBERNETES_SERVICE_HOST" in os.environ and not kubeconfig
        if inside:
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
    async with client.ApiClient(configuration=configuration) as api:
        yield KubeApi(api, namespace, inside=inside)


def _job(namespace: str, name: str) -> str:
    return f"{_JOBS}/namespaces/{quote(namespace)}/{PLURAL}/{quote(name)}"


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"


def _refusal(status: int, text: str, action: str) -> PodwrightError:
    try:
        said = str(json.loads(text).get("message") or text)[:300]
    except ValueError:
        said = text[:300]
    kind: type[PodwrightError] = Unavailable
    if status == 404:
        kind = NotFound
    elif status == 409:
        kind = WrongState
    elif status in (401, 403):
        kind = Denied
    elif status in (400, 422):
        kind = InvalidRequest
    return kind(f"the API server says {status}: {said}", asked=action)
