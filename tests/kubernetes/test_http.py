"""The lab's own client, against a server that ends connections as a newer API server does."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.kubernetes.lab._http import KubeHttp
from tests.kubernetes.lab._keys import Keys


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers a GET with an empty object."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"{}\n")

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, server: http.server.HTTPServer) -> Iterator[KubeHttp]:
    """By TLS; a client of it."""
    keys = Keys(folder / "keys")
    keys.server("server", ["IP:127.0.0.1"])
    keys.client("who", "who")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys.folder / "server.crt", keys.folder / "server.key")
    with server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        client = KubeHttp(f"https://127.0.0.1:{server.server_port}", keys.folder, "who")
        try:
            yield client
        finally:
            client.close()
            server.shutdown()
            thread.join()


def test_a_connection_that_was_ended_while_it_was_idle_is_made_anew(tmp_path: Path) -> None:
    ended = threading.Semaphore(0)

    class Once(Answers):
        def do_GET(self) -> None:
            super().do_GET()
            self.close_connection = True  # which the client was not told

    class Server(http.server.ThreadingHTTPServer):
        def shutdown_request(self, request: object) -> None:
            super().shutdown_request(request)  # type: ignore[arg-type]
            ended.release()

    with serving(tmp_path, Server(("127.0.0.1", 0), Once)) as client:
        for _ in range(3):
            assert client.ask("GET", "/") == {}
            ended.acquire()


def test_a_watch_ends_when_it_is_told_to(tmp_path: Path) -> None:
    over = threading.Event()

    class Goes(Answers):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}\n")
            with contextlib.suppress(OSError):
                self.rfile.read(1)  # which comes to an end when the client does
            over.set()
            self.close_connection = True

    with serving(tmp_path, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Goes)) as client:
        seen = []
        for event in client.watch("/"):
            seen.append(event)
            client.end_watches()
            assert over.wait(120)
    assert seen == [{}]
