"""The page's own files, and the headers by which a browser loads nothing else."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from podwright.http import HttpRequest, Reply

_CONTENT_TYPE_BY_SUFFIX: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
#: Every view of the page has an address, whose first word names the view.
VIEW_ADDRESSES: Final = frozenset(
    {
        *("pod", "problems", "line", "partitions", "leases", "machines", "allocations"),
        *("quotas", "users", "events", "time", "login"),
    }
)
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Files:
    """The files of the page. headers: those of every answer of the page."""

    headers: Final[tuple[tuple[bytes, bytes], ...]] = (
        (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    )

    def __init__(self) -> None:
        #: By path: kind, body, tag. They are read at the first request.
        self._known: dict[str, tuple[str, bytes, bytes]] = {}

    def answer(self, request: HttpRequest) -> Reply | None:
        """Return a file, or None where there is none at that path."""
        path = request.path
        if path == "/" or path.split("/")[1] in VIEW_ADDRESSES:
            path = "/static/index.html"
        if not path.startswith("/static/"):
            return None
        if not self._known:
            self._read_static_files()
        if path not in self._known:
            return None
        content_type, file_bytes, etag = self._known[path]
        headers = (*self.headers, (b"etag", etag), (b"cache-control", b"no-cache"))
        if request.header("if-none-match") == etag.decode():
            return Reply(304, b"", content_type, headers)
        return Reply(200, file_bytes, content_type, headers)

    def _read_static_files(self) -> None:
        for entry in (files("podwright.page") / "static").iterdir():
            content_type = _CONTENT_TYPE_BY_SUFFIX.get(entry.name.rpartition(".")[2])
            if content_type is not None:
                file_bytes = entry.read_bytes()
                etag = f'"{hashlib.sha256(file_bytes).hexdigest()[:24]}"'.encode()
                self._known[f"/static/{entry.name}"] = (content_type, file_bytes, etag)
