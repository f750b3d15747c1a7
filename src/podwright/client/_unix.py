"""Calls over a Unix socket: JSON in HTTP/1.1, written here without a library.

A command's start-up time is time that its user waits. Importing http.client costs 40 ms and grpc
130 ms; this module has the few parts of HTTP that Podwright's server needs. The kernel tells the
server who calls, so no token is sent.
"""

from __future__ import annotations

import os
import socket
import time

import msgspec

from podwright.client._named_server import NamedServer
from podwright.errors import PodwrightError, TimedOut, Unavailable, error_from_json
from podwright.wire import ErrorBody, Method, Value, prepared

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024 * 1024
#: Calls that change something and may still be sent twice: the second finds the work done.
_REPEATABLE_CALLS = frozenset({"Renew"})


class _ConnectionLost(Exception):
    """The connection ended. sent: the request may have been carried out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class UnixTransport:
    """Calls the server at a socket path. The connection is kept between calls.

    Raises Unavailable where no server answers, and TimedOut where the answer takes too long.
    """

    def __init__(self, socket_path: str) -> None:
        self.where = socket_path
        self.server = NamedServer(socket_path, socket=os.path.abspath(socket_path))
        self._socket: socket.socket | None = None
        self._buffer = bytearray()

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Make one call. It is sent a second time only where that can do no harm.

        A kept connection may have been closed by the server meanwhile. Then a request that was not
        sent completely was not carried out, and one that only reads, or is in `_REPEATABLE_CALLS`,
        may be repeated.
        """
        deadline = time.monotonic() + timeout
        request_body = msgspec.json.encode(request)
        http_request = (
            f"POST /podwright.v1/{method.name} HTTP/1.1\r\nHost: podwright\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(request_body)}\r\n\r\n"
        ).encode() + request_body
        reused = self._socket is not None
        try:
            try:
                return self._send_and_receive(method, http_request, deadline)
            except _ConnectionLost as lost:
                repeatable = not method.changes or method.name in _REPEATABLE_CALLS
                if not reused or (lost.sent and not repeatable):
                    raise
                return self._send_and_receive(method, http_request, deadline)
        except _ConnectionLost as lost:
            maybe_done = lost.sent and method.changes
            raise Unavailable(
                f"the server at {self.where} ended the connection ({lost})",
                would_work="whether it did what was asked is not known; look before asking again"
                if maybe_done
                else "try again when it runs",
            ) from None
        except TimeoutError:
            self.close()
            raise TimedOut(
                f"the server at {self.where} gave no answer within {timeout:g} s",
                operation=method.name,
                would_work="ask with a longer --timeout; what was asked may still be under way"
                if method.changes
                else "a longer --timeout waits for it, if it is only busy",
            ) from None

    def another(self) -> UnixTransport:
        """Return a transport to the same server, over a connection of its own."""
        return UnixTransport(self.where)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._buffer.clear()

    def _send_and_receive(self, method: Method, http_request: bytes, deadline: float) -> Value:
        connection = self._connected(deadline)
        try:
            connection.settimeout(_seconds_left(deadline))
            try:
                connection.sendall(http_request)
            except TimeoutError:
                raise
            except OSError as error:  # an incomplete request is not carried out
                raise _ConnectionLost(_error_reason(error), sent=False) from None
            http_status, keep_open, reply_body = self._read_answer(deadline)
        except BaseException:  # a late answer must not be read as the next call's
            self.close()
            raise
        if not keep_open:
            self.close()
        return self._decode_answer(method, http_status, reply_body)

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is not None and not _is_closed(self._socket):
            return self._socket
        self.close()
        self._socket = connect(self.where, _seconds_left(deadline))
        return self._socket

    def _read_answer(self, deadline: float) -> tuple[int, bool, bytes]:
        while (head_end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise self._strange_answer_error("an answer without an end of its head")
            self._receive_bytes(deadline)
        head_lines = bytes(self._buffer[:head_end]).decode("latin-1").split("\r\n")
        http_version, _, status_text = head_lines[0].partition(" ")
        headers = {
            name.strip().lower(): header_value.strip()
            for name, _, header_value in (line.partition(":") for line in head_lines[1:])
        }
        body_length = headers.get("content-length", "")
        if (
            not http_version.startswith("HTTP/1.")
            or not status_text[:3].isdecimal()
            or not body_length.isdecimal()
        ):
            raise self._strange_answer_error(f"{head_lines[0][:60]!r}")
        if int(body_length) > MAX_BODY_BYTES:
            raise self._strange_answer_error(f"an answer of {body_length} bytes")
        answer_length = head_end + 4 + int(body_length)
        while len(self._buffer) < answer_length:
            self._receive_bytes(deadline)
        answer_body = bytes(self._buffer[head_end + 4 : answer_length])
        del self._buffer[:answer_length]
        return int(status_text[:3]), headers.get("connection", "").lower() != "close", answer_body

    def _receive_bytes(self, deadline: float) -> None:
        assert self._socket is not None
        self._socket.settimeout(_seconds_left(deadline))
        try:
            chunk = self._socket.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError as error:
            raise _ConnectionLost(_error_reason(error), sent=True) from None
        if not chunk:
            raise _ConnectionLost("without an answer", sent=True)
        self._buffer += chunk

    def _decode_answer(self, method: Method, http_status: int, reply_body: bytes) -> Value:
        try:
            if http_status == 200:
                return msgspec.json.decode(reply_body, type=prepared(method.reply))
            refusal = msgspec.to_builtins(msgspec.json.decode(reply_body, type=prepared(ErrorBody)))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._strange_answer_error(
                f"status {http_status} and what is not a reply ({error})"
            ) from None
        raise error_from_json(refusal)

    def _strange_answer_error(self, detail: str) -> PodwrightError:
        self.close()
        return Unavailable(
            f"what answers at {self.where} is not a server of Podwright's: it sent {detail}",
            would_work="name the right one with --api-host or PODWRIGHT_SOCKET",
        )


def connect(socket_path: str, timeout: float) -> socket.socket:
    """Connect to a Unix socket. Raises Unavailable, or TimeoutError."""
    deadline = time.monotonic() + timeout
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_seconds_left(deadline))
            connection.connect(socket_path)
            return connection
        except BlockingIOError:  # Linux: the socket's accept queue is full
            connection.close()
            time.sleep(min(0.01, _seconds_left(deadline)))
        except TimeoutError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            raise Unavailable(
                f"no server answers at {socket_path} ({_error_reason(error)})",
                would_work="start it, or name another with --api-host or PODWRIGHT_SOCKET",
                errno=error.errno or 0,
            ) from None
        except BaseException:
            connection.close()
            raise


def _seconds_left(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed this idle connection, or sent something unasked."""
    try:
        connection.settimeout(0)
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _error_reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
