"""NMX-M as its OpenAPI document describes it: 202 and an operation, which then takes effect.

`NmxModel` is the fabric itself and answers requests in this process; it is a transport for the
driver. `Rack` serves a model over HTTP, for the commands and for Prism, which judges both sides.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podwright.agents.fabric import FabricInventory, HttpAnswer, MachineIdentity

DOMAIN = "3b7f0a1e-9a53-4f4e-8d6b-6f7f2f9d4c10"
OTHER_DOMAIN = "f0000000-0000-4000-8000-000000000000"
DEFAULT_PARTITION = 32766
TIME = "2026-01-23T04:56:07.000+00:00"
_OVER = ("completed", "failed", "cancelled")


@dataclass
class NmxFaults:
    """The faults of the next change (one of them each), and those of every listing."""

    lie: bool = False
    half: bool = False
    fail: str = ""
    slow: int = 0  #: how often the operation of the next change is found under way
    null_fields: bool = False
    missing_trays: set[int] = field(default_factory=set)
    unlinked: set[str] = field(default_factory=set)  #: GPUs without NVLink
    elsewhere: set[str] = field(default_factory=set)  #: GPUs that are listed in another domain
    unhealthy: set[str] = field(default_factory=set)  #: names of partitions


@dataclass
class Operation:
    """One change. left: how often it is still reported as under way before it takes effect."""

    number: str
    method: str
    path: str
    body: Any
    left: int
    lie: bool = False
    half: bool = False
    fail: str = ""
    status: str = "in-progress"
    details: str = ""


def uid(tray: int, device: int) -> int:
    """Return the DeviceUID of a GPU. device: from 1 on."""
    # Below 2**53: Prism, which judges this, reads numbers as JavaScript does.
    return 0xB_0000_0000_0000 + 16 * tray + device


def identifier(number: int) -> str:
    """Return an id in NMX-M's form."""
    return f"{number:024x}"


def inventory(trays: int = 18, per_tray: int = 4) -> FabricInventory:
    """Return an inventory in which machine t3 is tray 3."""
    return FabricInventory(
        {
            f"t{tray}": MachineIdentity(
                tuple(uid(tray, device) for device in range(1, per_tray + 1)),
                domain=DOMAIN,
                chassis="1820324160012",
                slot=10 + tray,
                tray=tray,
            )
            for tray in range(trays)
        }
    )


class NmxModel:
    """Trays of GPUs in one domain. polls: how often an operation is reported as under way."""

    def __init__(self, trays: int = 18, per_tray: int = 4, polls: int = 2) -> None:
        self.trays = {
            identifier(0xA000 + 16 * tray + device): (tray, device)
            for tray in reversed(range(trays))
            for device in range(1, per_tray + 1)
        }
        #: The GPU's own record of its partition, which half-done changes leave as it was.
        self.gpu_partition = dict.fromkeys(self.trays, 0)
        self.partitions: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, Operation] = {}
        self.calls: list[str] = []
        self.faults = NmxFaults()
        self.polls = polls
        self._count = 0

    # -- what tests see and do -----------------------------------------------------------------

    def named(self) -> dict[str, set[str]]:
        """Return the partitions and the ids of their GPUs."""
        return {p["Name"]: set(self._ids(p["Members"])) for p in self.partitions.values()}

    def gpu_id(self, tray: int, device: int) -> str:
        """The id of a GPU."""
        return next(i for i, place in self.trays.items() if place == (tray, device))

    def add(self, name: str, members: Sequence[Any], partition_id: int = 0) -> str:
        """Add a partition of another party. Returns its id."""
        self._count += 1
        number = identifier(self._count)
        self.partitions[number] = {
            "ID": number,
            "PartitionID": partition_id or self._count,
            "Name": name,
            "Type": "ID_BASED",
            "Health": "HEALTHY",
            "Members": list(members),
            "CreatedAt": TIME,
            "UpdatedAt": TIME,
        }
        self._record(number)
        return number

    def place(self, gpu_id: str) -> dict[str, Any]:
        """Return the form in which a GPU is named by its place."""
        tray, device = self.trays[gpu_id]
        return {
            "DomainUUID": DOMAIN,
            "ChassisID": 1,
            "SlotID": 10 + tray,
            "HostID": 1,
            "DeviceID": device,
        }

    def move(self, gpu_ids: Iterable[str], name: str) -> None:
        """Put GPUs into a partition, or into none, as another party's request would."""
        moved = set(gpu_ids)
        for partition in self.partitions.values():
            members = [i for i in self._ids(partition["Members"]) if i not in moved]
            partition["Members"] = members + sorted(moved if partition["Name"] == name else ())
        empty = [
            number
            for number, partition in self.partitions.items()
            if not partition["Members"] and partition["Name"].startswith("podwright-")
        ]
        for number in empty:
            del self.partitions[number]
        self._record("")

    def finish(self) -> None:
        """Let all operations take effect now."""
        for operation in self.operations.values():
            self._finish(operation)

    # -- requests --------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See `HttpTransport.request`."""
        kind, _, number = path.partition("?")[0].removeprefix("/nmx/v1/").partition("/")
        code, document = self._get(kind, number) if method == "GET" else (0, None)
        if method != "GET":
            self.calls.append(method)
            code, document = self._accept(method, path, number, body)
        return HttpAnswer(code, {}, json.dumps(document).encode())

    def _get(self, kind: str, number: str) -> tuple[int, Any]:
        if kind == "operations":
            for operation in list(self.operations.values()):
                operation.left -= 1
                if operation.left < 0:
                    self._finish(operation)
            if number:
                return 200, self._shown(self.operations[number])
            return 200, [self._shown(operation) for operation in self.operations.values()]
        if kind == "gpus":
            missing = self.faults.missing_trays
            return 200, [self._gpu(i) for i in self.trays if self.trays[i][0] not in missing]
        if kind == "partitions":
            return 200, [self._partition(p) for p in self.partitions.values()]
        return 404, _error(404, "not-found", kind)

    def _accept(self, method: str, path: str, number: str, body: Any) -> tuple[int, Any]:
        if method != "POST" and number not in self.partitions:
            return 404, _error(404, "not-found", "no such partition")
        if problem := self._conflict(number, (body or {}).get("Members") or []):
            return 409, _error(409, "conflict", problem)
        self._count += 1
        made = Operation(identifier(self._count), method, path, body, self.polls)
        made.lie, made.half, made.fail = self.faults.lie, self.faults.half, self.faults.fail
        made.left = self.faults.slow or self.polls
        self.faults.lie = self.faults.half = False
        self.faults.fail, self.faults.slow = "", 0
        self.operations[made.number] = made
        return 202, {"operationId": made.number}

    def _conflict(self, number: str, members: Sequence[Any]) -> str:
        present = self.partitions.get(number, {}).get("Members") or []
        if len({type(member) for member in [*members, *(present if members else [])]}) > 1:
            return "member types are mixed"
        ids = self._ids(members)
        others = {
            i
            for key, p in self.partitions.items()
            if key != number
            for i in self._ids(p["Members"])
        }
        if others & set(ids) or len(set(ids)) != len(ids):
            return "a GPU is in at most one partition"
        return ""

    def _finish(self, operation: Operation) -> None:
        if operation.status in _OVER:
            return
        number = operation.path.partition("/partitions/")[2]
        members = (operation.body or {}).get("Members") or []
        operation.details = operation.fail or self._conflict(number, members)
        if not operation.details and operation.method != "POST" and number not in self.partitions:
            operation.details = "no such partition"
        operation.status = "failed" if operation.details else "completed"
        if operation.details or operation.lie:
            return
        if operation.method == "POST":
            number = self.add(operation.body["Name"], [])
        before = self.gpu_partition.copy()
        if operation.method == "DELETE":
            del self.partitions[number]
        else:
            self.partitions[number]["Members"] = members
        self._record(number)
        if operation.half:
            self.gpu_partition = before

    def _record(self, number: str) -> None:
        """Let the GPUs' own records follow the list of partitions."""
        self.gpu_partition = dict.fromkeys(self.trays, 0) | {
            i: p["PartitionID"] for p in self.partitions.values() for i in self._ids(p["Members"])
        }

    def _ids(self, members: Sequence[Any] | None) -> list[str]:
        by_place = {json.dumps(self.place(i)): i for i in self.trays}
        return [m if isinstance(m, str) else by_place[json.dumps(m)] for m in members or ()]

    # -- shapes ----------------------------------------------------------------------------------

    def _gpu(self, gpu_id: str) -> dict[str, Any]:
        tray, device = self.trays[gpu_id]
        shown: dict[str, Any] = {
            "ID": gpu_id,
            "Name": f"GPU-{tray}-{device}",
            "DomainUUID": OTHER_DOMAIN if gpu_id in self.faults.elsewhere else DOMAIN,
            "DeviceID": device,
            "DeviceUID": uid(tray, device),
            "DevicePcieID": device,
            "SystemUID": 0xA000 + tray,
            "VendorID": 0x10DE,
            "ALIDList": [1111, 2222],
            "PartitionID": self.gpu_partition[gpu_id],
            "Health": "NO_NVLINK" if gpu_id in self.faults.unlinked else "HEALTHY",
            "LocationInfo": {
                "ChassisID": 1,
                "ChassisSerialNumber": "1820324160012",
                "SlotID": 10 + tray,
                "HostID": 1,
                "TrayIndex": tray,
            },
        }
        if self.faults.null_fields:
            for name in ("DomainUUID", "LocationInfo", "Health", "Name"):
                shown[name] = None
        return shown

    def _partition(self, partition: dict[str, Any]) -> dict[str, Any]:
        ill = partition["Name"] in self.faults.unhealthy
        health = "UNHEALTHY" if ill else partition["Health"]
        return {**partition, "Health": health, "Members": partition["Members"] or None}

    def _shown(self, operation: Operation) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "ID": operation.number,
            "Status": operation.status,
            "CurrentStep": "configuring",
            "Percentage": 100 if operation.status in _OVER else 50,
            "CreatedAt": TIME,
            "UpdatedAt": TIME,
            "Request": {
                "Method": operation.method.lower(),
                "URI": f"https://nmx.example{operation.path}",
                "Body": operation.body,
                "Cancellable": False,
            },
        }
        if operation.details:
            shown["Result"] = {"Data": None, "Error": "internal", "Details": operation.details}
        return shown


def _error(code: int, name: str, description: str) -> dict[str, Any]:
    return {"httpErrorCode": code, "customErrorCode": name, "description": description}


class Rack(NmxModel):
    """A model behind HTTP on loopback. login: the required Authorization header."""

    def __init__(self, trays: int = 18, polls: int = 2) -> None:
        super().__init__(trays, polls=polls)
        self.login = ""
        self.drop_next = ""  # carry the next request of this method out, and never answer it
        rack, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if self.raw_requestline and self.parse_request():
                    with lock:
                        rack.serve(self)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        size = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(size)) if size else None
        if self.login and handler.headers.get("Authorization") != self.login:
            answer = HttpAnswer(401, {}, json.dumps(_error(401, "login", "Unauthorized")).encode())
        else:
            answer = self.request(handler.command, handler.path, body)
        if self.drop_next == handler.command:
            self.drop_next = ""
            return
        handler.send_response(answer.status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(answer.content)))
        handler.end_headers()
        handler.wfile.write(answer.content)
