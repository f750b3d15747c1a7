"""HTTP to the manager of a fabric: JSON, a site's own authority, bounded replies, no redirects.

Each request has a connection of its own. Calls to such managers are few, and a connection that is
not kept cannot be half dead. Nothing leaves this machine unencrypted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from podwright.errors import Internal, InvalidRequest, Unavailable
from podwright.http import HttpAnswer, ask, open_connection

if TYPE_CHECKING:
    import ssl

#: Seconds for one request, and the limit of a reply in bytes.
ANSWER_TIMEOUT, ANSWER_LIMIT = 10.0, 16 << 20
#: Seconds for which a stream of events may be silent, and the limit of a line of it in bytes.
STREAM_TIMEOUT, LINE_LIMIT = 300.0, 1 << 16
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class HttpTransport(Protocol):
    """Sends one request. Raises Unavailable when no reply arrives, whether or not the request was
    carried out.
    """

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Send a request. path: from the first slash on. body: sent as JSON; None: no body."""
        ...


class HttpManager:
    """An HttpTransport to one manager.

    product: its name in messages. url: `https://host:port`. login_file: a file `user:password` that
    other users cannot read, sent as HTTP's basic authentication; None sends none. authority_file: a
    file with the certificates to trust in place of this machine's.
    """

    def __init__(
        self,
        product: str,
        url: str,
        *,
        login_file: Path | None = None,
        authority_file: Path | None = None,
    ) -> None:
        url_parts = urlsplit(url)
        if url_parts.scheme not in ("http", "https") or not url_parts.hostname:
            raise InvalidRequest(
                f"{url} is not an address of {product}", would_work="https://HOST[:PORT]"
            )
        if url_parts.scheme == "http" and url_parts.hostname not in _LOOPBACK_HOSTS:
            raise InvalidRequest(
                f"{url} would send a password in the clear",
                would_work=f"https://{url_parts.netloc}",
            )
        self.product, self.url = product, url
        self._parts, self._authority = url_parts, authority_file
        self._headers = {"Accept": "application/json"}
        if login_file is not None:
            encoded_login = base64.b64encode(":".join(read_login(login_file)).encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded_login}"

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See `HttpTransport.request`.

        Raises Internal for a redirect and for a reply that is larger than ANSWER_LIMIT.
        """
        request_headers = {**self._headers, **(headers or {})}
        request_content = None
        if body is not None:
            request_content = json.dumps(body).encode()
            request_headers["Content-Type"] = "application/json"
        try:
            answer = ask(
                self._place(),
                method,
                path,
                request_content,
                request_headers,
                timeout=ANSWER_TIMEOUT,
                limit=ANSWER_LIMIT + 1,
                tls=self._tls(),
            )
        except OSError as error:
            raise Unavailable(f"{self.product} at {self.url} does not answer: {error}") from None
        if len(answer.content) > ANSWER_LIMIT:
            raise Internal(f"{self.product} answers {method} {path} with more than 16 MiB")
        if 300 <= answer.status < 400:
            raise Internal(
                f"{self.product} redirects {method} {path}, and redirects are not followed",
                would_work="use the address that it redirects to, if that is the right one",
            )
        return answer

    def lines(self, path: str, headers: dict[str, str]) -> Iterator[bytes]:
        """Yield the lines of a stream of events as they arrive, each of LINE_LIMIT bytes at most.

        Raises Unavailable when there is no stream, and when it is silent for STREAM_TIMEOUT.
        """
        import http.client

        connection = open_connection(self._place(), STREAM_TIMEOUT, self._tls())
        try:
            accept_header = {"Accept": "text/event-stream"}
            connection.request("GET", path, None, {**self._headers, **headers, **accept_header})
            response = connection.getresponse()
            if response.status != 200:
                raise Unavailable(f"{self.product} offers no stream at {path}: {response.status}")
            while line := response.readline(LINE_LIMIT):
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the stream of {self.product} broke: {error}") from None
        finally:
            connection.close()

    def _place(self) -> str:
        usual_port = 80 if self._parts.scheme == "http" else 443
        return f"{self._parts.hostname}:{self._parts.port or usual_port}"

    def _tls(self) -> ssl.SSLContext | None:
        if self._parts.scheme == "http":
            return None
        import ssl

        return ssl.create_default_context(cafile=self._authority)


def read_login(path: Path) -> tuple[str, str]:
    """Return the user and the password in a file. Raises InvalidRequest when others can read it."""
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidRequest(
                f"others can read {path}, which contains a password",
                would_work=f"chmod 600 {path}",
            )
        user, colon, password = path.read_text().strip().partition(":")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None
    if not colon:
        raise InvalidRequest(f"{path} has no user and password", would_work="USER:PASSWORD in it")
    return user, password
