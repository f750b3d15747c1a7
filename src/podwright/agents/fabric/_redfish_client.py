"""Requests to a Redfish service: resources, tags, tasks and a session.

Sources: DSP0266 (protocol: ETag, If-Match, 202 with Location and Retry-After, sessions) and the
schemas Zone, Endpoint and Task. Every answer is checked for the parts that are used.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from podwright.agents.fabric._hardware_interface import FabricTiming
from podwright.agents.fabric._manager_http_client import HttpTransport
from podwright.agents.fabric._redfish_events import RedfishEvents
from podwright.errors import Internal, PodwrightError, Unavailable
from podwright.http import HttpAnswer

REDFISH_ROOT = "/redfish/v1"
_SESSIONS_PATH = f"{REDFISH_ROOT}/SessionService/Sessions"
_RUNNING_STATES = ("New", "Starting", "Running", "Pending", "Stopping", "Suspended", "Interrupted")


class RedfishResource(NamedTuple):
    """A resource as it was read. tag: its ETag, empty when the service offers none."""

    path: str
    document: Mapping[str, Any]
    tag: str

    def links(self, *property_names: str) -> list[str]:
        """Return the paths in a property of references; none when it is absent or null."""
        property_value: Any = self.document
        for name in property_names:
            property_value = (
                property_value.get(name) if isinstance(property_value, Mapping) else None
            )
        if property_value is None:
            return []
        if not isinstance(property_value, list):
            raise _schema_error(self.path, f"{'.'.join(property_names)} is not a list")
        paths = [
            reference.get("@odata.id")
            for reference in property_value
            if isinstance(reference, Mapping)
        ]
        if len(paths) != len(property_value) or not all(isinstance(path, str) for path in paths):
            raise _schema_error(
                self.path, f"{'.'.join(property_names)} has an entry without @odata.id"
            )
        return [str(path) for path in paths]


class Redfish:
    """One Redfish service. Calls block, and raise Unavailable or Internal.

    login: user and password of a session, which ends with the process; None opens no session.
    changed: is told of each event of the service, from another thread.
    """

    def __init__(
        self,
        transport: HttpTransport,
        timing: FabricTiming | None = None,
        login: tuple[str, str] | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._transport = transport
        self._events = RedfishEvents(transport, changed)
        timing = timing or FabricTiming()
        sleep = timing.sleep
        self._timing = replace(timing, sleep=lambda seconds: self._events.pause(seconds, sleep))
        self._login = login
        self._token = self._session = ""

    def get(self, path: str) -> RedfishResource | None:
        """Return a resource; None when it does not exist."""
        answer = self._request("GET", path)
        if answer.status == 404:
            return None
        document = answer.document()
        if answer.status != 200 or not isinstance(document, Mapping):
            raise _refusal_error("GET", path, answer)
        etag = answer.headers.get("etag") or str(document.get("@odata.etag") or "")
        return RedfishResource(path, document, etag)

    def members(self, collection_path: str) -> list[RedfishResource]:
        """Return the members of a collection, over all its pages."""
        resources: list[RedfishResource] = []
        page_path: str | None = collection_path
        while page_path:
            collection = self.get(page_path)
            if collection is None:
                raise Internal(f"the Redfish service has no {page_path}")
            for member_path in collection.links("Members"):
                if (resource := self.get(member_path)) is not None:
                    resources.append(resource)
            page = collection.document.get("Members@odata.nextLink")
            page_path = page if isinstance(page, str) and page != page_path else None
        return resources

    def change(self, method: str, path: str, body: Any = None, tag: str = "") -> None:
        """Send a change, and wait for the end of its task if the service makes one.

        tag: the ETag that the resource must still have. Raises Unavailable when the resource has
        another tag, because somebody changed it meanwhile.
        """
        headers = {"If-Match": tag} if tag else {}
        answer = self._request(method, path, body, headers)
        if answer.status in (412, 428):
            raise Unavailable(f"{path} was changed by somebody else meanwhile: {answer.status}")
        if method == "DELETE" and answer.status == 404:
            return
        if answer.status == 202:
            self._follow_task(answer, f"{method} {path}")
        elif not 200 <= answer.status < 300:
            raise _refusal_error(method, path, answer)

    def wait_for_tasks(self, concerns: Callable[[str, str | None], bool]) -> None:
        """Wait until no task that concerns the caller is under way.

        concerns: takes the path that a task works on, and the body of its request: empty for a
        deletion, None for a body that the service does not tell. Returns at once when the service
        lists no tasks.
        """
        tasks_path = f"{REDFISH_ROOT}/TaskService/Tasks"
        running_tasks: list[RedfishResource] = []
        for _ in self._timing.pauses():
            if self.get(tasks_path) is None:
                return
            running_tasks = [
                task
                for task in self.members(tasks_path)
                if task.document.get("TaskState") in _RUNNING_STATES
                and concerns(*_task_request(task.document))
            ]
            if not running_tasks:
                return
        raise Unavailable(
            f"the Redfish service has not ended {running_tasks[0].path} "
            f"within {self._timing.patience:g} s"
        )

    def close(self) -> None:
        """End the session."""
        path, headers = self._session, self._session_header()
        self._session = self._token = ""
        if path:
            try:
                self._transport.request("DELETE", path, None, headers)
            except PodwrightError:
                return  # the session ends by itself, after the service's own time

    # -- inside ----------------------------------------------------------------------------------

    def _follow_task(self, answer: HttpAnswer, request_line: str) -> None:
        monitor_path = _location_path(answer.headers.get("location", ""))
        if not monitor_path:
            raise Internal(f"the Redfish service answers {request_line} with 202 and no Location")
        self.listen_for_events()
        task_state: Any = None
        for _ in self._timing.pauses():
            answer = self._request("GET", monitor_path)
            document = answer.document()
            task_state = document.get("TaskState") if isinstance(document, Mapping) else None
            if answer.status == 202 or (answer.status == 200 and task_state in _RUNNING_STATES):
                self._timing.sleep(_retry_after_s(answer.headers.get("retry-after", "")))
                continue
            if 200 <= answer.status < 300 and task_state in (None, "Completed"):
                return
            raise _refusal_error(request_line.partition(" ")[0], monitor_path, answer)
        raise Unavailable(
            f"the Redfish service has not ended {monitor_path} "
            f"within {self._timing.patience:g} s: {task_state}"
        )

    def listen_for_events(self) -> None:
        """Let events shorten the pauses between two readings, if the service offers a stream."""
        if self._events.is_listening:
            return
        try:
            service = self.get(f"{REDFISH_ROOT}/EventService")
        except PodwrightError:
            return  # polling continues without events
        if service is not None:
            self._events.listen(service.document.get("ServerSentEventUri"), self._session_header())

    def _request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        if self._login is not None and not self._token:
            self._open_session(self._login)
        answer = self._transport.request(
            method, path, body, {**(headers or {}), **self._session_header()}
        )
        if answer.status == 401 and self._token and self._login is not None:
            self._open_session(self._login)  # the service ended the old session
            answer = self._transport.request(
                method, path, body, {**(headers or {}), **self._session_header()}
            )
        return answer

    def _session_header(self) -> dict[str, str]:
        return {"X-Auth-Token": self._token} if self._token else {}

    def _open_session(self, login: tuple[str, str]) -> None:
        credentials = {"UserName": login[0], "Password": login[1]}
        answer = self._transport.request("POST", _SESSIONS_PATH, credentials)
        token = answer.headers.get("x-auth-token", "")
        if answer.status not in (200, 201) or not token:
            raise Internal(
                f"the Redfish service opens no session: {answer.status}",
                would_work="--redfish-login FILE, with a user that may change zones",
            )
        if not self._session:
            atexit.register(self.close)
        self._token, self._session = token, _location_path(answer.headers.get("location", ""))


def _task_request(task: Mapping[str, Any]) -> tuple[str, str | None]:
    payload = task.get("Payload")
    if not isinstance(payload, Mapping):
        return "", None
    if payload.get("HttpOperation") == "DELETE":
        return str(payload.get("TargetUri") or ""), ""
    body = payload.get("JsonBody")
    return str(payload.get("TargetUri") or ""), body if isinstance(body, str) else None


def _location_path(location: str) -> str:
    """Return the path of a Location. Its host is ignored: it is the service's or nobody's."""
    return urlsplit(location).path


def _retry_after_s(retry_after: str) -> float:
    return min(float(retry_after), 10.0) if retry_after.isdecimal() else 0.0


def _schema_error(path: str, problem: str) -> Internal:
    return Internal(f"the Redfish service answers {path} against its schema: {problem}")


def _refusal_error(method: str, path: str, answer: HttpAnswer) -> Internal:
    document = answer.document()
    error_object = document.get("error") if isinstance(document, Mapping) else None
    reason = str(error_object.get("message") or "") if isinstance(error_object, Mapping) else ""
    return Internal(
        f"the Redfish service refuses {method} {path}: {answer.status}"
        f"{f', {reason}' if reason else ''}"
    )
