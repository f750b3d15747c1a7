"""A client of the API server without kubectl, for hundreds of requests and for watches."""

import contextlib
import http.client
import json
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.outer.lab import LabError

from ._objects import Object

_MERGE: Final = "application/merge-patch+json"


class Unanswered(LabError):
    """The API server is away, or does not listen yet."""


class Refused(LabError):
    """The API server refused. status: of HTTP."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class KubeHttp:
    """server: its address. keys: the folder of certificates. who: the name of a client there.

    Threads may share it: each has a connection of its own.
    """

    def __init__(self, server: str, keys: Path, who: str) -> None:
        self._at = urlsplit(server).netloc
        self._context = ssl.create_default_context(cafile=keys / "ca.crt")
        self._context.load_cert_chain(keys / f"{who}.crt", keys / f"{who}.key")
        self._here = threading.local()
        self._lines: list[http.client.HTTPSConnection] = []
        self._watches: set[socket.socket] = set()

    def close(self) -> None:
        """Close all connections."""
        self.end_watches()
        for line in self._lines:
            line.close()

    def end_watches(self) -> None:
        """End the watches that still run."""
        for line in list(self._watches):
            with contextlib.suppress(OSError):
                # Not by ssl's own, which takes the session away under whoever reads.
                socket.socket.shutdown(line, socket.SHUT_RDWR)

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        """Return the answer. A PATCH merges the body. Raises Unanswered, Refused."""
        line = getattr(self._here, "line", None)
        if line is None:
            line = http.client.HTTPSConnection(self._at, context=self._context, timeout=60)
            self._here.line = line
            self._lines.append(line)
        elif line.sock is not None and select.select([line.sock], [], [], 0)[0]:
            line.close()  # ended while it was idle: newer API servers do after 90 s
        headers = {"Content-Type": _MERGE if method == "PATCH" else "application/json"}
        try:
            line.request(method, path, None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            line.close()
            raise Unanswered(f"{method} {path}: {error!r}") from error
        except BaseException:
            line.close()  # half a request stands in it
            raise
        if answer.status >= 300:
            raise Refused(answer.status, f"{method} {path}: {text.decode(errors='replace')[:500]}")
        found: Object = json.loads(text)
        return found

    def watch(self, path: str) -> Iterator[Object]:
        """Yield events until the watch ends or the server is away. path: with `watch=1` and other
        parameters.
        """
        line = http.client.HTTPSConnection(self._at, context=self._context, timeout=5)
        try:
            line.connect()
            own = line.sock
            self._watches.add(own)
            try:
                line.request("GET", path)
                answer = line.getresponse()
                while text := answer.readline():
                    yield json.loads(text)
            finally:
                self._watches.discard(own)
        except (OSError, http.client.HTTPException, ValueError):
            return  # whoever watches lists anew
        finally:
            line.close()
