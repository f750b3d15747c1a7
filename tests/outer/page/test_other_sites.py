"""What pages of others try in the browser of one who is logged in: nothing comes of it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.outer.page.conftest import Site

pytestmark = pytest.mark.outer

_ACT = '{"method": "RemovePartition", "request": {"name": "p1"}}'
_EVIL = f"""<!doctype html><title>evil</title>
<iframe name="sink"></iframe><iframe id="framed"></iframe>
<form method="post" enctype="text/plain" target="sink">
<input name='{_ACT[:-1]}, "x": "' value='"}}'></form>
<script>
async function attack(site) {{
  const sent = [];
  const json = {{ 'content-type': 'application/json' }};
  for (const headers of [{{}}, json]) {{
    for (const mode of ['no-cors', 'cors']) {{
      const ask = fetch(`${{site}}/act`, {{ method: 'POST', mode, credentials: 'include', headers,
        body: '{_ACT}' }});
      sent.push(await ask.then((answer) => answer.type, () => 'refused'));
    }}
  }}
  sent.push(await fetch(`${{site}}/me`, {{ credentials: 'include' }}).then(() => 'read', () => 'refused'));
  const loaded = (frame) => new Promise((done) => frame.addEventListener('load', done));
  const sink = loaded(document.querySelector('[name=sink]'));
  document.forms[0].action = `${{site}}/act`;
  document.forms[0].submit();
  await sink;
  const framed = document.querySelector('#framed');
  const shown = loaded(framed);
  framed.src = `${{site}}/pod`;
  await shown;
  return sent;
}}
</script>"""  # noqa: E501


class _Evil(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(_EVIL.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def evil() -> Iterator[int]:
    """The port of another site's server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_another_site_can_neither_change_nor_read_nor_frame_the_page(
    make_site: Callable[..., Site], browser: Browser, evil: int
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(site.link())
    expect(page.locator("#who")).to_contain_text("root (administrator)")
    # On another port of the same address cookies travel: there the origin alone tells them apart.
    for host in ("evil.example", "127.0.0.1"):
        page.goto(f"http://{host}:{evil}/")
        sent = page.evaluate("(site) => attack(site)", site.address)
        assert set(sent) <= {"opaque", "refused"}, (host, sent)
        framed = page.query_selector("#framed")
        assert framed is not None
        frame = framed.content_frame()
        assert frame is not None
        frame.wait_for_url("chrome-error:**", wait_until="commit")
        assert frame.locator("#views").count() == 0
    page.goto(f"{site.address}/partitions")
    expect(page.locator("#who")).to_contain_text("root (administrator)")
    assert list(site.partitions()) == ["p1"]
    assert "RemovePartition" not in site.good("vipu", "events")
    context.close()


_OWN = """async (request) => {
  const headers = { 'content-type': 'application/json' };
  const asked = [['GET', '/me'], ['GET', '/live'], ['POST', '/act', request],
    ['POST', '/session', '{"token": "x"}'], ['GET', '/v1/partitions']];
  return Promise.all(asked.map(async ([method, path, body]) =>
    (await fetch(path, { method, body, headers })).status));
}"""


def test_a_foreign_name_that_points_to_this_machine_gets_no_data(
    make_site: Callable[..., Site], browser: Browser
) -> None:
    """DNS rebinding: to the browser, the page is of the other site's own origin."""
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    answer = page.goto(f"http://rebound.example:{site.port}/pod")
    assert answer is not None
    assert answer.status == 421
    assert set(page.evaluate(_OWN, _ACT)) <= {405, 421}
    assert list(site.partitions()) == ["p1"]
    context.close()
