"""Other pods for the page: the address of each one's page, and whether its server is healthy.

Each server is asked for `/healthz` every half minute. The request carries no credentials and
nothing about this pod. An answer is bounded in bytes and in time, and a redirect is not followed.
Nothing here runs while a page is drawn: the page reads the last known states, so a server that
hangs delays nobody.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from podwright.errors import InvalidRequest
from podwright.hosts import is_loopback

INTERVAL_S: Final = 30.0  #: seconds between two rounds
TIMEOUT_S: Final = 5.0  #: seconds for one answer, from resolving the name to the last byte
MAX_PODS: Final = 64
_MAX_BYTES: Final = 8192  #: bytes of an answer, including its header
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL = re.compile(r"https?://[A-Za-z0-9._~:\[\]/-]{1,500}")


def parse_other_pods(texts: Sequence[str]) -> dict[str, str]:
    """Return URLs by name, from texts `NAME=URL`. Raises InvalidRequest."""
    pods: dict[str, str] = {}
    for text in texts:
        name, _, url = text.partition("=")
        problem = _problem(name, url)
        if name in pods:
            problem = f"{name} is named twice"
        elif len(pods) >= MAX_PODS:
            problem = f"there are more than {MAX_PODS} pods"
        if problem:
            raise InvalidRequest(
                problem,
                operation=f"--peer {text[:80]!r}" if "@" not in text else "--peer",
                would_work="--peer east=https://pod-east.example.org/",
            )
        pods[name] = url
    return pods


def _problem(name: str, url: str) -> str:
    """Return what is wrong with a pod's name or URL, or an empty text."""
    if not _NAME.fullmatch(name):
        return "a pod's name has letters, digits, '.', '_' and '-'"
    if not _URL.fullmatch(url):
        return "a pod's URL is http:// or https:// with a host, and no user, query or fragment"
    try:
        parts = urllib.parse.urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        return "the URL's host or port is not valid"
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return "without TLS anybody on the way could change the answer: http is for loopback only"
    return ""


class OtherPods:
    """The health of other pods' servers. urls: by name. check: returns the health of one server."""

    def __init__(
        self,
        urls: Mapping[str, str],
        *,
        check: Callable[[str], Awaitable[str]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._urls, self._sleep = urls, sleep
        self._check = check or HealthCheck().health
        self._states: dict[str, str] = {}

    def topic(self) -> dict[str, object]:
        """Return address and state by name. The state is `not known` before the first answer."""
        return {
            name: {"url": url, "state": self._states.get(name, "not known")}
            for name, url in self._urls.items()
        }

    async def run(self) -> None:
        """Check all of them, round after round. Each state is known as soon as it is there."""
        while self._urls:
            await asyncio.gather(*(self._update(name, url) for name, url in self._urls.items()))
            await self._sleep(INTERVAL_S)

    async def _update(self, name: str, url: str) -> None:
        self._states[name] = await self._check(url)


class HealthCheck:
    """Asks servers for `/healthz`.

    Names are resolved by threads of its own. The loop's common threads also do other work of the
    server, and a name service that hangs would use them up. timeout: seconds for one answer.
    """

    def __init__(self, timeout: float = TIMEOUT_S) -> None:
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(4, "other-pods")
        self._tls: ssl.SSLContext | None = None

    async def health(self, url: str) -> str:
        """Return `ok` or `standby` as the server answers, `unhealthy` or `unreachable`.

        `unhealthy`: the server answers something else. `unreachable`: it does not answer in time,
        or its certificate is not trusted.
        """
        parts = urllib.parse.urlsplit(url)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._answer(parts)
        except OSError:  # this covers ssl.SSLError and TimeoutError
            return "unreachable"
        return _state(answer) if answer else "unreachable"

    async def _answer(self, parts: urllib.parse.SplitResult) -> bytes:
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        addresses = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        if secure and self._tls is None:
            self._tls = ssl.create_default_context()
        connection: _Connection | None = None
        for number, (*_, place) in enumerate(addresses, 1):
            try:
                connection = await asyncio.open_connection(
                    str(place[0]),
                    port,
                    ssl=self._tls if secure else None,
                    server_hostname=host if secure else None,
                    limit=_MAX_BYTES,
                )
                break
            except OSError:
                if number == len(addresses):
                    raise
        if connection is None:
            return b""
        reader, writer = connection
        try:
            # With HTTP/1.0 the answer ends with the connection and has no chunks.
            path = f"{parts.path.rstrip('/')}/healthz"
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode("ascii"))
            answer = b""
            while len(answer) <= _MAX_BYTES and (more := await reader.read(_MAX_BYTES)):
                answer += more
            return answer
        finally:
            writer.transport.abort()


def _state(answer: bytes) -> str:
    """Return the state in an HTTP answer."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if len(answer) > _MAX_BYTES or not end or not re.match(rb"HTTP/1\.[01] 200\b", head):
        return "unhealthy"
    try:
        status = msgspec.json.decode(body, type=dict[str, Any]).get("status")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "unhealthy"
    return str(status) if status in ("ok", "standby") else "unhealthy"
