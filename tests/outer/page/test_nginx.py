"""The page behind Debian's nginx, by the very lines that docs/page.md has for it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.outer.page.conftest import Site
from tests.ports import free_port

pytestmark = pytest.mark.outer
PAGE = Path(__file__).parents[3] / "docs" / "page.md"
NAME = "pod.example.org"
_SECRET = "0123456789abcdef0123456789abcdef"
_WHOLE = """\
daemon off;
user {user};
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        auth_basic "the site";
        auth_basic_user_file {folder}/users;
{block}
    }}
}}
"""


def asked(port: int, path: str, who: str = "", **headers: str) -> tuple[int, bytes]:
    """What nginx answers. who: logged in at the site; an event stream: its first event."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    sent = {"Host": NAME, **headers}
    if who:
        sent["Authorization"] = "Basic " + b64encode(f"{who}:word".encode()).decode()
    try:
        line.request("GET", path, headers=sent)
        answer = line.getresponse()
        if answer.getheader("content-type", "").startswith("text/event-stream"):
            return answer.status, answer.fp.readline() + answer.fp.readline()
        return answer.status, answer.read()
    finally:
        line.close()


def test_nginx_with_the_documented_lines_shows_the_page_to_its_users(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    secret = tmp_path / "proxy.secret"
    secret.write_text(_SECRET)
    secret.chmod(0o600)
    site = make_site(
        *("--preset", "pod16", "--http-name", NAME, "--http-proxy", "127.0.0.1"),
        *("--http-proxy-secret", str(secret)),
    )
    site.good("vipu-admin", "create", "user", "alice")
    found = re.search(r"For nginx,.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    block = found[1].replace("what is in proxy.secret", _SECRET).replace(":8091", f":{site.port}")
    assert block.count(_SECRET) == block.count(str(site.port)) == 1
    folder, port = tmp_path / "nginx", free_port()
    folder.mkdir()
    hashed = subprocess.run(
        ["openssl", "passwd", "-apr1", "word"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (folder / "users").write_text("".join(f"{name}:{hashed}\n" for name in ("alice", "mallory")))
    (folder / "nginx.conf").write_text(
        _WHOLE.format(folder=folder, port=port, block=block, user="root")
    )
    nginx = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                code, _ = asked(port, "/me")
                break
            except OSError:
                assert nginx.poll() is None, (folder / "error.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert code == 401  # nginx's own
        code, body = asked(port, "/me", "alice")
        assert (code, json.loads(body)["name"]) == (200, "alice")
        # Whatever somebody puts in, nginx takes the header from the log-in.
        code, body = asked(port, "/me", "alice", **{"X-Remote-User": "root"})
        assert json.loads(body)["name"] == "alice"
        code, body = asked(port, "/me", "mallory")
        assert code in (401, 403)
        assert b"mallory" in body
        code, body = asked(port, "/live", "alice")
        assert code == 200
        assert body.strip()  # an event passes at once
        code, body = asked(port, "/pod", "alice")
        assert code == 200
        assert b"<html" in body
        # Without the proxy's secret the same header counts for nothing.
        code, body = asked(site.port, "/me", **{"X-Remote-User": "alice"})
        assert json.loads(body)["name"] != "alice"
    finally:
        nginx.terminate()
        nginx.wait(120)
