"""Speaking to NMX-M, which divides the NVLink fabric of racks: asynchronous REST.

Creating, changing and removing a partition answer 202 and the id of an operation, which is then
asked for until it has ended. Names and shapes follow NVIDIA's public documentation and its own
published client.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from podwright.errors import Internal, InvalidRequest, Unavailable

_BASE = "/nmx/v1"
#: Seconds for one request, and for an operation to end.
_ANSWER, _OPERATION = 10.0, 25.0


class Nmx:
    """One NMX-M. Calls block, and raise wire.Unavailable or wire.Internal.

    url: `https://host:port`. login: a file `user:password` that others cannot read; None sends
    none. authority: a file with the certificates to believe.
    """

    def __init__(
        self,
        url: str,
        *,
        login: Path | None = None,
        authority: Path | None = None,
        patience: float = _OPERATION,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(f"{url} is no address of NMX-M", would_work="https://HOST[:PORT]")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise InvalidRequest(
                f"{url} would send a password in the clear", would_work=f"https://{parts.netloc}"
            )
        self.url = url
        self._parts = parts
        self._authority = authority
        self._headers = {"Accept": "application/json", **_login(login)}
        self._patience = patience
        self._sleep = sleep

    def gpus(self) -> list[dict[str, Any]]:
        """All GPUs: `ID`, `DomainUUID`, `DeviceID`, `LocationInfo`."""
        return self._list("gpus")

    def partitions(self) -> list[dict[str, Any]]:
        """All partitions: `ID`, `Name`, `Members`."""
        return self._list("partitions")

    def create(self, name: str, members: list[Any]) -> None:
        """A partition of these GPUs, complete when this returns."""
        self._operate("POST", "partitions", {"Name": name, "Members": members})

    def update(self, number: str, members: list[Any]) -> None:
        """Let a partition have these GPUs and no others."""
        self._operate("PUT", f"partitions/{number}", {"Members": members})

    def delete(self, number: str) -> None:
        """Remove a partition. One that is gone already is no fault."""
        self._operate("DELETE", f"partitions/{number}", None)

    def _list(self, what: str) -> list[dict[str, Any]]:
        code, found = self._ask("GET", what, None)
        if code != 200 or not isinstance(found, list):
            raise self._failed(f"list {what}", code, found)
        return found

    def _operate(self, method: str, what: str, body: Mapping[str, Any] | None) -> None:
        code, said = self._ask(method, what, body)
        if method == "DELETE" and code == 404:
            return
        number = said.get("operationId") if isinstance(said, dict) else None
        if code != 202 or not number:
            raise self._failed(f"{method} {what}", code, said)
        until, pause = time.monotonic() + self._patience, 0.05
        while True:
            code, state = self._ask("GET", f"operations/{number}", None)
            if code != 200 or not isinstance(state, dict):
                raise self._failed(f"ask for operation {number}", code, state)
            status = str(state.get("Status", "")).lower()
            if status == "completed":
                return
            if status in ("failed", "cancelled"):
                result = state.get("Result") or {}
                why = result.get("Details") or result.get("Error") or status
                raise Internal(f"NMX-M did not carry out {method} {what}: {why}")
            if time.monotonic() >= until:
                raise Unavailable(
                    f"NMX-M has not ended operation {number} within {self._patience:g} s: "
                    f"{state.get('CurrentStep') or status}"
                )
            self._sleep(pause)
            pause = min(2 * pause, 1.0)

    def _ask(self, method: str, what: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        import http.client

        connection = self._connection()
        headers = dict(self._headers)
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, f"{_BASE}/{what}", content, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"NMX-M at {self.url} does not answer: {error}") from None
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, None

    def _connection(self) -> Any:
        import http.client

        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_ANSWER)
        import ssl

        context = ssl.create_default_context(cafile=self._authority)
        return http.client.HTTPSConnection(host, port, timeout=_ANSWER, context=context)

    def _failed(self, what: str, code: int, said: Any) -> Exception:
        why = ""
        if isinstance(said, dict):
            why = str(said.get("Details") or said.get("Error") or said.get("message") or "")
        text = f"NMX-M does not {what}: {code}{f', {why}' if why else ''}"
        if code in (401, 403):
            return Internal(text, would_work="--nmx-login FILE, with the user rw-user")
        return Internal(text)


def _login(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidRequest(
                f"others can read {path}, which holds a password", would_work=f"chmod 600 {path}"
            )
        words = path.read_bytes().strip()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None
    if b":" not in words:
        raise InvalidRequest(f"{path} has no user and password", would_work="USER:PASSWORD in it")
    return {"Authorization": f"Basic {base64.b64encode(words).decode()}"}
