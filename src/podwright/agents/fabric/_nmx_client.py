"""Requests to NMX-M, which divides the NVLink fabric of racks.

NMX-M replies to a change with 202 and the id of an operation, which ends later. A reply that does
not have the shapes of NVIDIA's specification is an error, and is never read as a default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from podwright.agents.fabric._hardware_interface import FabricTiming
from podwright.agents.fabric._manager_http_client import HttpTransport
from podwright.agents.fabric._nmx_messages import (
    NmxGpu,
    NmxMember,
    NmxOperation,
    NmxPartition,
    NmxResult,
)
from podwright.errors import Internal, Unavailable
from podwright.http import HttpAnswer

_T = TypeVar("_T")
_BASE = "/nmx/v1"
_ENDED_STATUSES = ("completed", "failed", "cancelled")


class Nmx:
    """One NMX-M. Calls block, and raise Unavailable or Internal."""

    def __init__(self, transport: HttpTransport, timing: FabricTiming | None = None) -> None:
        self._transport = transport
        self._timing = timing or FabricTiming()

    def gpus(self) -> list[NmxGpu]:
        """Return all GPUs."""
        return self._get("gpus", list[NmxGpu])

    def partitions(self) -> list[NmxPartition]:
        """Return all partitions."""
        return self._get("partitions", list[NmxPartition])

    def operations(self) -> list[NmxOperation]:
        """Return all operations that NMX-M remembers."""
        return self._get("operations", list[NmxOperation])

    def create(self, name: str, members: list[NmxMember]) -> None:
        """Create a partition of these GPUs, and wait for the end of the operation."""
        self._run_operation("POST", "partitions", {"Name": name, "Members": members})

    def update(self, partition_id: str, members: list[NmxMember]) -> None:
        """Replace a partition's GPUs by these, and wait for the end of the operation."""
        self._run_operation("PUT", f"partitions/{partition_id}", {"Members": members})

    def delete(self, partition_id: str) -> None:
        """Delete a partition. A partition that does not exist is not an error."""
        self._run_operation("DELETE", f"partitions/{partition_id}", None)

    def wait_while(self, concerns: Callable[[NmxOperation], bool]) -> None:
        """Wait until no operation that concerns the caller is under way."""
        running_operations: list[NmxOperation] = []
        for _ in self._timing.pauses():
            running_operations = [
                operation
                for operation in self.operations()
                if operation.Status not in _ENDED_STATUSES and concerns(operation)
            ]
            if not running_operations:
                return
        raise self._late(running_operations[0])

    def _run_operation(self, method: str, path: str, body: Any) -> None:
        answer = self._request(method, path, msgspec.to_builtins(body))
        if method == "DELETE" and answer.status == 404:
            return
        answer_json = answer.document()
        operation_id = answer_json.get("operationId") if isinstance(answer_json, dict) else None
        if answer.status != 202 or not isinstance(operation_id, str) or not operation_id:
            raise _refusal_error(f"{method} {path}", answer)
        operation: NmxOperation | None = None
        for _ in self._timing.pauses():
            operation = self._get(f"operations/{operation_id}", NmxOperation)
            if operation.Status == "completed":
                return
            if operation.Status in _ENDED_STATUSES:
                result = operation.Result or NmxResult()
                reason = result.Details or result.Error or operation.Status
                raise Internal(f"NMX-M did not carry out {method} {path}: {reason}")
        assert operation is not None
        raise self._late(operation)

    def _late(self, operation: NmxOperation) -> Unavailable:
        return Unavailable(
            f"NMX-M has not ended operation {operation.ID} within {self._timing.patience:g} s: "
            f"{operation.CurrentStep or operation.Status}"
        )

    def _get(self, path: str, reply_type: type[_T]) -> _T:
        answer = self._request("GET", path)
        if answer.status != 200:
            raise _refusal_error(f"GET {path}", answer)
        try:
            return msgspec.json.decode(answer.content, type=reply_type)
        except msgspec.MsgspecError as error:
            raise Internal(f"NMX-M answers GET {path} against its specification: {error}") from None

    def _request(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        return self._transport.request(method, f"{_BASE}/{path}", body)


def _refusal_error(request_line: str, answer: HttpAnswer) -> Internal:
    answer_json = answer.document()
    reason = answer_json.get("description", "") if isinstance(answer_json, dict) else ""
    problem = f"NMX-M refuses {request_line}: {answer.status}{f', {reason}' if reason else ''}"
    if answer.status in (401, 403):
        return Internal(problem, would_work="--nmx-login FILE, with the user rw-user")
    return Internal(problem)
