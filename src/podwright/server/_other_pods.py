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

CHECK_INTERVAL_S: Final = 30.0  #: seconds between two rounds
ANSWER_TIMEOUT_S: Final = 5.0  #: seconds for one answer, from resolving the name to the last byte
MAX_PODS: Final = 64
_MAX_ANSWER_BYTES: Final = 8192  #: bytes of an answer, including its header
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_POD_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_POD_URL_PATTERN = re.compile(r"https?://[A-Za-z0-9._~:\[\]/-]{1,500}")


def parse_other_pods(peer_texts: Sequence[str]) -> dict[str, str]:
    """Return URLs by name, from texts `NAME=URL`. Raises InvalidRequest."""
    pod_urls: dict[str, str] = {}
    for peer_text in peer_texts:
        pod_name, _, url = peer_text.partition("=")
        problem = _pod_option_problem(pod_name, url)
        if pod_name in pod_urls:
            problem = f"{pod_name} is named twice"
        elif len(pod_urls) >= MAX_PODS:
            problem = f"there are more than {MAX_PODS} pods"
        if problem:
            raise InvalidRequest(
                problem,
                operation=f"--peer {peer_text[:80]!r}" if "@" not in peer_text else "--peer",
                would_work="--peer east=https://pod-east.example.org/",
            )
        pod_urls[pod_name] = url
    return pod_urls


def _pod_option_problem(pod_name: str, url: str) -> str:
    """Return what is wrong with a pod's name or URL, or an empty text."""
    if not _POD_NAME_PATTERN.fullmatch(pod_name):
        return "a pod's name has letters, digits, '.', '_' and '-'"
    if not _POD_URL_PATTERN.fullmatch(url):
        return "a pod's URL is http:// or https:// with a host, and no user, query or fragment"
    try:
        url_parts = urllib.parse.urlsplit(url)
        is_valid = bool(url_parts.hostname) and url_parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        return "the URL's host or port is not valid"
    if url_parts.scheme == "http" and not is_loopback(url_parts.hostname or ""):
        return "without TLS anybody on the way could change the answer: http is for loopback only"
    return ""


class OtherPods:
    """The health of other pods' servers. pod_urls: by name. check_health: returns the health of one
    server.
    """

    def __init__(
        self,
        pod_urls: Mapping[str, str],
        *,
        check_health: Callable[[str], Awaitable[str]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._urls, self._sleep = pod_urls, sleep
        self._check = check_health or HealthCheck().health
        self._states: dict[str, str] = {}

    def topic(self) -> dict[str, object]:
        """Return address and state by name. The state is `not known` before the first answer."""
        return {
            pod_name: {"url": url, "state": self._states.get(pod_name, "not known")}
            for pod_name, url in self._urls.items()
        }

    async def run(self) -> None:
        """Check all of them, round after round. Each state is known as soon as it is there."""
        while self._urls:
            await asyncio.gather(
                *(self._update_health(pod_name, url) for pod_name, url in self._urls.items())
            )
            await self._sleep(CHECK_INTERVAL_S)

    async def _update_health(self, pod_name: str, url: str) -> None:
        self._states[pod_name] = await self._check(url)


class HealthCheck:
    """Asks servers for `/healthz`.

    Names are resolved by threads of its own. The loop's common threads also do other work of the
    server, and a name service that hangs would use them up. timeout_s: seconds for one answer.
    """

    def __init__(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout = timeout_s
        self._threads = ThreadPoolExecutor(4, "other-pods")
        self._tls: ssl.SSLContext | None = None

    async def health(self, url: str) -> str:
        """Return `ok` or `standby` as the server answers, `unhealthy` or `unreachable`.

        `unhealthy`: the server answers something else. `unreachable`: it does not answer in time,
        or its certificate is not trusted.
        """
        url_parts = urllib.parse.urlsplit(url)
        try:
            async with asyncio.timeout(self._timeout):
                http_answer = await self._answer(url_parts)
        except OSError:  # this covers ssl.SSLError and TimeoutError
            return "unreachable"
        return _state_in_answer(http_answer) if http_answer else "unreachable"

    async def _answer(self, url_parts: urllib.parse.SplitResult) -> bytes:
        host, uses_tls = url_parts.hostname or "", url_parts.scheme == "https"
        port = url_parts.port or (443 if uses_tls else 80)
        addresses = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        if uses_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        connection: _Connection | None = None
        for attempt_number, (*_, socket_address) in enumerate(addresses, 1):
            try:
                connection = await asyncio.open_connection(
                    str(socket_address[0]),
                    port,
                    ssl=self._tls if uses_tls else None,
                    server_hostname=host if uses_tls else None,
                    limit=_MAX_ANSWER_BYTES,
                )
                break
            except OSError:
                if attempt_number == len(addresses):
                    raise
        if connection is None:
            return b""
        reader, writer = connection
        try:
            # With HTTP/1.0 the answer ends with the connection and has no chunks.
            path = f"{url_parts.path.rstrip('/')}/healthz"
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {url_parts.netloc}\r\n\r\n".encode("ascii"))
            http_answer = b""
            while len(http_answer) <= _MAX_ANSWER_BYTES and (
                chunk := await reader.read(_MAX_ANSWER_BYTES)
            ):
                http_answer += chunk
            return http_answer
        finally:
            writer.transport.abort()


def _state_in_answer(http_answer: bytes) -> str:
    """Return the state in an HTTP answer."""
    http_header, header_end, json_body = http_answer.partition(b"\r\n\r\n")
    if (
        len(http_answer) > _MAX_ANSWER_BYTES
        or not header_end
        or not re.match(rb"HTTP/1\.[01] 200\b", http_header)
    ):
        return "unhealthy"
    try:
        status = msgspec.json.decode(json_body, type=dict[str, Any]).get("status")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "unhealthy"
    return str(status) if status in ("ok", "standby") else "unhealthy"
