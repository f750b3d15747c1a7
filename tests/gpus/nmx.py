"""NMX-M as its public documentation says that it answers: 202 and an operation, then its result.

It refuses what the documentation says is refused: GPUs in two partitions, members of mixed types,
unknown ids.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DOMAIN = "3b7f0a1e-9a53-4f4e-8d6b-6f7f2f9d4c10"


class Rack:
    """18 trays of 4 GPUs in one domain. `polls`: how often an operation is still under way."""

    def __init__(self, trays: int = 18, polls: int = 2) -> None:
        self.gpus = [
            {
                "ID": f"gpu-{tray:02d}-{device}",
                "DomainUUID": DOMAIN,
                "DeviceID": device,
                "LocationInfo": {
                    "ChassisID": 1,
                    "SlotID": 10 + tray,
                    "HostID": 1,
                    "TrayIndex": tray,
                },
            }
            for tray in reversed(range(trays))
            for device in range(1, 5)
        ]
        self.partitions: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.login = ""
        self.fail_next = ""
        self.drop_next = ""  # carry it out, but never say so
        self.polls = polls
        self._count = 0
        rack = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                rack.answer(self, "GET")

            def do_POST(self) -> None:
                rack.answer(self, "POST")

            def do_PUT(self) -> None:
                rack.answer(self, "PUT")

            def do_DELETE(self) -> None:
                rack.answer(self, "DELETE")

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self) -> dict[str, set[str]]:
        """The partitions and the ids of their GPUs."""
        return {p["Name"]: {self._id(m) for m in p["Members"]} for p in self.partitions.values()}

    def add(self, name: str, members: list[Any]) -> str:
        """A partition that somebody else made."""
        self._count += 1
        number = f"{self._count:024x}"
        self.partitions[number] = {
            "ID": number,
            "PartitionID": self._count,
            "Name": name,
            "Type": "USER",
            "Health": "HEALTHY",
            "Members": members,
        }
        return number

    def location(self, gpu: dict[str, Any]) -> dict[str, Any]:
        """How a GPU is named by its place."""
        where = {k: gpu["LocationInfo"][k] for k in ("ChassisID", "SlotID", "HostID")}
        return {"DomainUUID": DOMAIN, **where, "DeviceID": gpu["DeviceID"]}

    def _id(self, member: Any) -> str:
        if isinstance(member, str):
            return member
        return str(next(g["ID"] for g in self.gpus if self.location(g) == member))

    def answer(self, handler: BaseHTTPRequestHandler, method: str) -> None:
        """One request."""
        size = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(size)) if size else None
        if self.login and handler.headers.get("Authorization") != self.login:
            self._say(handler, 401, {"message": "Unauthorized"})
            return
        assert handler.path.startswith("/nmx/v1/")
        what, _, number = handler.path.removeprefix("/nmx/v1/").partition("/")
        if method == "GET":
            self._get(handler, what, number)
            return
        self.calls.append(method)
        code, said = self._change(method, number, body)
        if self.drop_next == method:
            self.drop_next = ""
            handler.close_connection = True
            return
        self._say(handler, code, said)

    def _get(self, handler: BaseHTTPRequestHandler, what: str, number: str) -> None:
        if what == "operations":
            operation = self.operations[number]
            operation["left"] -= 1
            done = operation["left"] < 0
            status = ("failed" if operation["error"] else "completed") if done else "in-progress"
            state = {"ID": number, "Status": status, "CurrentStep": "configuring", "Percentage": 50}
            if done and operation["error"]:
                state["Result"] = {"Error": "INTERNAL", "Details": operation["error"]}
            self._say(handler, 200, state)
        elif what == "gpus":
            self._say(handler, 200, self.gpus)
        else:
            self._say(handler, 200, list(self.partitions.values()))

    def _change(self, method: str, number: str, body: Any) -> tuple[int, Any]:
        if method != "POST" and number not in self.partitions:
            return 404, {"message": "no such partition"}
        members = (body or {}).get("Members", [])
        kinds = {type(member) for member in members}
        if number in self.partitions:
            kinds |= (
                {type(member) for member in self.partitions[number]["Members"]}
                if members
                else set()
            )
        if len(kinds) > 1:
            return 409, {"message": "member types are mixed"}
        ids = [self._id(member) for member in members]
        others = {
            i
            for key, p in self.partitions.items()
            if key != number
            for i in map(self._id, p["Members"])
        }
        if others & set(ids) or len(set(ids)) != len(ids):
            return 409, {"message": "a GPU is in at most one partition"}
        error, self.fail_next = self.fail_next, ""
        if not error:
            if method == "POST":
                self.add(body["Name"], members)
            elif method == "PUT":
                self.partitions[number]["Members"] = members
            else:
                del self.partitions[number]
        self._count += 1
        operation = f"{self._count:024x}"
        self.operations[operation] = {"left": self.polls, "error": error}
        return 202, {"operationId": operation}

    @staticmethod
    def _say(handler: BaseHTTPRequestHandler, code: int, body: Any) -> None:
        content = json.dumps(body).encode()
        handler.send_response(code)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
