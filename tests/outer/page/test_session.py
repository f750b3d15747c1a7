"""A session in a real browser: it belongs to one port, it spans tabs and reloads, and it ends with
its server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.outer.page.conftest import Site
from tests.outer.page.test_page import live

pytestmark = pytest.mark.outer
ROOT = "root (administrator)"
_ACT = """async (secret) => (await fetch('/act', { method: 'POST',
  headers: { 'content-type': 'application/json', 'x-podwright-session': secret },
  body: JSON.stringify({ method: 'DrainMachine', request: { name: 'ag1' } }) })).status"""


class _Listener(ThreadingHTTPServer):
    """Another account's server on this host: it writes down what browsers send."""

    seen: list[str]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Listener)
        server.seen.append(f"{self.path}\n{self.headers}")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another</title>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def another() -> Iterator[_Listener]:
    with _Listener(("127.0.0.1", 0), _Handler) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_cookie_that_another_port_receives_opens_no_session(
    make_site: Callable[..., Site], page: Page, another: _Listener
) -> None:
    site = make_site("--preset", "pod16")
    addresses: list[str] = []
    page.context.on("request", lambda request: addresses.append(request.url))
    page.goto(site.link())
    expect(page.locator("#who")).to_contain_text(ROOT)
    live(page)
    secret = page.evaluate("() => localStorage.getItem('podwright.session')")
    cookie = page.context.cookies()[0]
    assert cookie["name"] == f"podwright_session_{site.port}"
    assert len(secret) == len(cookie["value"]) == 43
    asked = [url for url in addresses if not urlsplit(url).path.startswith("/v1/history")]
    assert not any(urlsplit(url).query for url in asked)
    assert not any(secret in url for url in addresses)
    page.goto(f"http://127.0.0.1:{another.server_address[1]}/")
    (seen, *_) = another.seen
    assert cookie["value"] in seen  # browsers keep cookies by host
    assert secret not in seen
    assert page.evaluate("() => localStorage.length") == 0
    # A browser with the stolen cookie alone is nobody's.
    page.goto(f"{site.address}/pod")
    page.evaluate("() => localStorage.clear()")
    page.reload()
    expect(page.locator("#who")).to_contain_text("Log in")
    assert page.evaluate(_ACT, "") == 401
    assert page.evaluate(_ACT, secret) == 200  # both halves together are the session


def test_two_servers_on_one_host_have_a_session_each(
    make_site: Callable[..., Site], page: Page
) -> None:
    one, two = make_site("--preset", "pod16"), make_site("--preset", "pod4")
    page.goto(one.link())
    expect(page.locator("#who")).to_contain_text(ROOT)
    other = page.context.new_page()
    other.goto(two.link())
    expect(other.locator("#who")).to_contain_text(ROOT)
    for tab, site in ((page, one), (other, two)):
        tab.goto(f"{site.address}/pod")
        expect(tab.locator("#who")).to_contain_text(ROOT)
        live(tab)
    other.click("#who button")
    expect(other.locator("#who")).to_contain_text("Log in")
    page.reload()
    expect(page.locator("#who")).to_contain_text(ROOT)


def test_a_session_spans_tabs_and_reloads_on_a_secure_server(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16", "--secure")
    page.goto(f"{site.address}/pod")
    expect(page.locator("#state")).to_contain_text("Log in to see this server.")
    second = page.context.new_page()
    second.goto(f"{site.address}/pod")
    expect(second.locator("#state")).to_contain_text("Log in to see this server.")
    page.goto(site.link())
    for tab in (page, second):  # a tab hears of the log-in of another
        live(tab)
        expect(tab.locator("#who")).to_contain_text(ROOT)
        tab.reload()
        live(tab)
        expect(tab.locator("#who")).to_contain_text(ROOT)
    page.click("#who button")
    for tab in (page, second):
        expect(tab.locator("#who")).to_contain_text("Log in")
        expect(tab.locator("#state")).to_contain_text("Log in to see this server.")


def test_after_a_restart_the_head_shows_who_is_logged_in(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    link = site.link()
    page.goto(link)
    expect(page.locator("#who")).to_contain_text(ROOT)
    second = page.context.new_page()
    second.goto(f"{site.address}/machines")
    expect(second.locator("td.act button")).to_have_count(4)
    for stop in (signal.SIGKILL, signal.SIGTERM):
        site.stop(stop)
        expect(page.locator("#state")).to_contain_text("does not answer")
        site.start()
        for tab in (page, second):
            live(tab)
            expect(tab.locator("#who")).to_contain_text("Log in")
        expect(second.locator("td.act button")).to_have_count(0)
        page.goto(site.link())
        expect(page.locator("#who")).to_contain_text(ROOT)
        expect(second.locator("td.act button")).to_have_count(4)


def test_a_used_token_logs_nobody_in_however_it_is_spelled(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    link = site.link()
    page.goto(link)
    expect(page.locator("#who")).to_contain_text(ROOT)
    page.click("#who button")
    expect(page.locator("#who")).to_contain_text("Log in")
    token = link.partition("token=")[2]
    plain = token.replace("-", "%2B").replace("_", "/")
    for again, words in (
        (token, "has been used"),
        (f"{token}%3D", "not one of this server's"),
        (plain if plain != token else f"{token}%3D%3D", "not one of this server's"),
    ):
        page.goto(f"{site.address}/pod")
        page.goto(f"{site.address}/login#token={again}")
        expect(page.locator("[role=alert]").first).to_contain_text(words)
        expect(page.locator("#who")).to_contain_text("Log in")
