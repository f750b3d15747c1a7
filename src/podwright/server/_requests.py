"""HTTP requests out of what arrives on a connection: llhttp reads them, we set the bounds.

Each call of each command passes here, so the reading is C's (httptools), not Python's.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import httptools

MAX_HEAD = 16 * 1024
MAX_BODY = 1024 * 1024
_CLOSED_EARLY = "the connection was closed in the middle of a request"


class Bad(Exception):
    """A request that HTTP itself answers, and after which the connection ends."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class HttpRequest(NamedTuple):
    """A whole request. path: without its query. last: the connection ends after it."""

    method: bytes
    path: bytes
    body: bytes
    last: bool


class Requests:
    """The requests of one connection, in their order. ready: whole ones that nobody took yet.

    bad: why there will be no more. wants_word: the other side waits for `100 Continue`.
    """

    def __init__(self) -> None:
        self.ready: deque[HttpRequest] = deque()
        self.bad: Bad | None = None
        self.wants_word = False
        self._parser = httptools.HttpRequestParser(self)
        self._begun = False
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._body = bytearray()
        self._head = self._fed = 0
        self._in_head = True
        self._host = False

    def feed(self, data: bytes) -> None:
        """More has arrived; nothing is the end."""
        if self.bad is not None:
            return
        if not data:
            if self._begun:
                self.bad = Bad(400, _CLOSED_EARLY)
            return
        self._begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # There is no other protocol here: this request is answered as it stands, and the last.
            if self.ready:
                self.ready.append(self.ready.pop()._replace(last=True))
        except httptools.HttpParserError as error:
            self._refuse(400, f"{error}")
        if self._begun and self._in_head:
            self._fed += len(data)  # a part may be so long that the parser tells us nothing yet
            self._check_head()

    def _check_head(self) -> None:
        if max(self._head, self._fed) > MAX_HEAD:
            self._refuse(431, f"the head is too long: it may have {MAX_HEAD} bytes")

    def _refuse(self, status: int, problem: str) -> None:
        if self.bad is None:
            self.bad = Bad(status, problem)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begin()
        self._begun = True

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, whole."""
        self._head += len(name) + len(value)
        match name.lower():
            case b"host":
                self._host = True
            case b"expect":
                self.wants_word = value.lower() == b"100-continue"
            case b"content-length" if int(value) > MAX_BODY:
                self._too_much()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._head += len(self._url)
        self._check_head()
        if not self._host and self._parser.get_http_version() != "1.0":
            self._refuse(400, "there is no Host header")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self.wants_word = False
        if len(self._body) + len(body) > MAX_BODY:
            self._too_much()
        if self.bad is None:
            self._body += body

    def on_message_complete(self) -> None:
        """A request is whole."""
        self.wants_word = False
        self._begun = False
        if self.bad is None:
            self.ready.append(
                HttpRequest(
                    self._parser.get_method(),
                    self._url.partition(b"?")[0],
                    bytes(self._body),
                    not self._parser.should_keep_alive(),
                )
            )

    def _too_much(self) -> None:
        self._refuse(413, f"a body may have {MAX_BODY} bytes")
