"""A small Redfish service: one fabric with the endpoints of hosts and devices, zones, and tasks.

It stands in for composable hardware in tests, in the demonstration and when no emulator is
available. Like DMTF's and SNIA's emulators it enforces nothing: an endpoint may be put into two
zones, and a zone may be changed without a tag. A wrong tag is refused, as the protocol demands.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podwright.agents.fabric import FabricInventory, HttpAnswer, MachineIdentity

FABRIC_PATH = "/redfish/v1/Fabrics/PCIe"
_ZONES_PATH, _ENDPOINTS_PATH = f"{FABRIC_PATH}/Zones", f"{FABRIC_PATH}/Endpoints"
_TASKS_PATH = "/redfish/v1/TaskService/Tasks"
_SERVICE_ROOT = {"@odata.id": "/redfish/v1/", "Fabrics": {"@odata.id": "/redfish/v1/Fabrics"}}


def endpoint_path(machine: str, index: int | None = None) -> str:
    """Return the endpoint of a device; without an index, that of the machine's host."""
    return f"{_ENDPOINTS_PATH}/{machine}-{'Host' if index is None else f'Gpu{index}'}"


def standin_inventory(machines: Mapping[str, int], hosts: Sequence[str] = ()) -> FabricInventory:
    """Return the identities of all devices of a stand-in with these machines and device counts.

    hosts: those of a pool, whose machines have no hosts of their own.
    """
    return FabricInventory(
        {
            machine: MachineIdentity(
                tuple(endpoint_path(machine, index) for index in range(count)),
                host="" if hosts else endpoint_path(machine),
            )
            for machine, count in machines.items()
        },
        hosts={host: endpoint_path(host) for host in hosts},
    )


class RedfishStandIn:
    """The service, as an HttpTransport in this process. machines: the number of devices of each.

    polls_per_task: how many times a change's task is reported as under way; 0 makes changes at
    once. hosts: those of a pool; none: each machine is a host.
    """

    def __init__(
        self, machines: Mapping[str, int], polls_per_task: int = 0, hosts: Sequence[str] = ()
    ) -> None:
        self.endpoints = {endpoint_path(host): "RootComplex" for host in hosts or machines}
        for machine, count in machines.items():
            for index in range(count):
                self.endpoints[endpoint_path(machine, index)] = "Processor"
        self.zones: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, tuple[int, str, Callable[[], object] | None]] = {}
        self.polls_per_task = polls_per_task
        self.calls: list[str] = []
        self._count = 0

    # -- what tests see and do -----------------------------------------------------------------

    def endpoints_by_zone(self) -> dict[str, set[str]]:
        """Return the names of the zones, and their endpoints."""
        return {
            zone["Name"]: {reference["@odata.id"] for reference in zone["Links"]["Endpoints"]}
            for zone in self.zones.values()
        }

    def add_zone(self, name: str, endpoints: list[str]) -> str:
        """Add a zone of another party. Returns its path."""
        links = {"Endpoints": [{"@odata.id": path} for path in endpoints]}
        return self._make_zone({"Name": name, "Links": links})

    def finish(self) -> None:
        """End all tasks now."""
        for path in list(self.tasks):
            self._advance_task(path, ends_now=True)

    # -- requests --------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See `HttpTransport.request`."""
        if method == "GET":
            return self._get(path)
        self.calls.append(method)
        if path == _ZONES_PATH and method == "POST":
            return self._change_now_or_as_task(path, lambda: self._make_zone(body))
        zone = self.zones.get(path)
        if zone is None:
            return _error_answer(404, f"there is no {path}")
        etag = (headers or {}).get("If-Match", "")
        if etag and etag != zone["@odata.etag"]:
            return _error_answer(412, "the zone has another ETag")
        if method == "DELETE":
            return self._change_now_or_as_task(path, lambda: self.zones.pop(path, None))
        if method == "PATCH":
            return self._change_now_or_as_task(path, lambda: self._patch_zone(path, body))
        return _error_answer(405, f"{method} is not allowed here")

    def _change_now_or_as_task(self, path: str, apply_change: Callable[[], object]) -> HttpAnswer:
        if not self.polls_per_task:
            apply_change()
            return HttpAnswer(201 if path == _ZONES_PATH else 200, {}, b"{}")
        self._count += 1
        monitor_path = f"{_TASKS_PATH}/{self._count}"
        self.tasks[monitor_path] = self.polls_per_task, path, apply_change
        return HttpAnswer(202, {"location": monitor_path, "retry-after": "1"}, b"{}")

    def _advance_task(self, task_path: str, *, ends_now: bool = False) -> None:
        polls_left, target_path, change = self.tasks[task_path]
        polls_left = 0 if ends_now else polls_left - 1
        if polls_left <= 0 and change is not None:
            change()
            change = None
        self.tasks[task_path] = polls_left, target_path, change

    def _get(self, path: str) -> HttpAnswer:
        if path == _ZONES_PATH:
            return _collection_answer(path, list(self.zones))
        if path == _ENDPOINTS_PATH:
            return _collection_answer(path, list(self.endpoints))
        if path == _TASKS_PATH:
            return _collection_answer(path, list(self.tasks))
        if path in self.zones:
            return _json_answer(self.zones[path])
        if path in self.tasks:
            self._advance_task(path)
            _, target_path, pending_change = self.tasks[path]
            task_state = "Running" if pending_change is not None else "Completed"
            return _json_answer(
                {"@odata.id": path, "TaskState": task_state, "Payload": {"TargetUri": target_path}}
            )
        if path in self.endpoints:
            connected_entity = {"EntityType": self.endpoints[path]}
            return _json_answer(
                {
                    "@odata.id": path,
                    "@odata.type": "#Endpoint.v1_8_1.Endpoint",
                    "Id": path.rpartition("/")[2],
                    "Name": path.rpartition("/")[2],
                    "ConnectedEntities": [connected_entity],
                    "Status": {"State": "Enabled", "Health": "OK"},
                }
            )
        if path.rstrip("/") == "/redfish/v1":
            return _json_answer(_SERVICE_ROOT)
        return _error_answer(404, f"there is no {path}")

    def _make_zone(self, body: Mapping[str, Any]) -> str:
        self._count += 1
        path = f"{_ZONES_PATH}/{self._count}"
        self.zones[path] = {
            **body,
            "@odata.id": path,
            "@odata.type": "#Zone.v1_6_1.Zone",
            "@odata.etag": f'W/"{self._count}"',
            "Id": str(self._count),
        }
        return path

    def _patch_zone(self, path: str, body: Mapping[str, Any]) -> None:
        if path in self.zones:
            self._count += 1
            self.zones[path].update(body, **{"@odata.etag": f'W/"{self._count}"'})


def _json_answer(document: Mapping[str, Any]) -> HttpAnswer:
    return HttpAnswer(200, {}, json.dumps(document).encode())


def _collection_answer(collection_path: str, member_paths: list[str]) -> HttpAnswer:
    references = [{"@odata.id": member} for member in member_paths]
    return _json_answer(
        {
            "@odata.id": collection_path,
            "Members": references,
            "Members@odata.count": len(references),
        }
    )


def _error_answer(http_status: int, message: str) -> HttpAnswer:
    body = {"error": {"code": "Base.1.0.GeneralError", "message": message}}
    return HttpAnswer(http_status, {}, json.dumps(body).encode())


class RedfishServer:
    """A stand-in behind HTTP on loopback. port: 0 for any free port."""

    def __init__(self, service: RedfishStandIn, port: int = 0) -> None:
        self.service, lock = service, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                self.close_connection = True
                if not self.raw_requestline or not self.parse_request():
                    return
                length = min(int(self.headers.get("Content-Length") or 0), 1 << 20)
                body = json.loads(self.rfile.read(length)) if length else None
                with lock:
                    answer = service.request(self.command, self.path, body, dict(self.headers))
                self.send_response(answer.status)
                for name, header_value in answer.headers.items():
                    self.send_header(name, header_value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
