"""The one HTTP client: whom it reaches, what it bounds, and what it raises."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podwright.http import NotHttp, ask

WHOLE = b"HTTP/1.1 418 x\r\nX-Kind: Tea\r\nContent-Length: 4\r\n\r\n[17]"
PARTS = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n2\r\n7]\r\n0\r\n\r\n"


@contextmanager
def peer(answer: bytes, *, at: Path | None = None) -> Iterator[str]:
    """A server that sends these bytes to the first request and closes; its place."""
    listener = socket.socket(socket.AF_INET if at is None else socket.AF_UNIX)
    listener.bind(("127.0.0.1", 0) if at is None else str(at))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}" if at is None else str(at)
    finally:
        thread.join()
        listener.close()


def test_a_socket_and_a_port_answer_alike(tmp_path: Path) -> None:
    for at in (None, tmp_path / "s"):
        with peer(WHOLE, at=at) as place:
            answer = ask(place, "GET", "/", timeout=60, limit=100)
        assert (answer.status, answer.headers["x-kind"], answer.document()) == (418, "Tea", [17])


def test_an_answer_in_parts_is_put_together() -> None:
    with peer(PARTS) as place:
        assert ask(place, "GET", "/", timeout=60, limit=100).document() == [17]


def test_no_more_than_the_limit_is_read() -> None:
    with peer(WHOLE) as place:
        assert ask(place, "GET", "/", timeout=60, limit=2).content == b"[1"


@pytest.mark.parametrize("answer", [b"220 mail.example ESMTP\r\n\r\n", b"", PARTS[:-10]])
def test_a_stranger_is_an_error_of_the_system(answer: bytes) -> None:
    with peer(answer) as place, pytest.raises(OSError, match=r"."):
        ask(place, "GET", "/", timeout=60, limit=100)


def test_what_does_not_speak_http_is_named_so() -> None:
    with peer(b"220 mail.example ESMTP\r\n\r\n") as place, pytest.raises(NotHttp):
        ask(place, "GET", "/", timeout=60, limit=100)


def test_silence_ends_with_a_time_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with pytest.raises(TimeoutError):
            ask(str(tmp_path / "s"), "GET", "/", timeout=0.05, limit=100)


def test_a_socket_without_a_server_refuses(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask(str(tmp_path / "s"), "GET", "/", timeout=60, limit=100)
