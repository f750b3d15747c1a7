"""The lab's own client, against a server that ends connections as a newer API server does."""

from __future__ import annotations

import http.server
import ssl
import threading
from pathlib import Path

from tests.kubernetes.lab._http import KubeHttp
from tests.kubernetes.lab._keys import Keys


def test_a_connection_that_was_ended_while_it_was_idle_is_made_anew(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.server("server", ["IP:127.0.0.1"])
    keys.client("who", "who")
    ended = threading.Semaphore(0)

    class Once(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            self.close_connection = True  # which the client was not told

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def shutdown_request(self, request: object) -> None:
            super().shutdown_request(request)  # type: ignore[arg-type]
            ended.release()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys.folder / "server.crt", keys.folder / "server.key")
    with Server(("127.0.0.1", 0), Once) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        client = KubeHttp(f"https://127.0.0.1:{server.server_port}", keys.folder, "who")
        try:
            for _ in range(3):
                assert client.ask("GET", "/") == {}
                ended.acquire()
        finally:
            client.close()
            server.shutdown()
            serving.join()
