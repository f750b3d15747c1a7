"""The rights on the page: who may log in, who may act, and from which address."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple, cast

import pytest

from podwright.controller import Role
from podwright.errors import Denied, InvalidRequest, Unauthenticated
from podwright.http import HttpRequest, Reply
from podwright.page import Page, Sessions, SiteProxy, TableQuery
from podwright.page._sessions import EACH, MAX_SESSIONS, SESSION_IDLE_S, SESSION_MAX_AGE_S
from podwright.page._static_files import CONTENT_SECURITY_POLICY
from podwright.wire import METHODS

HOST = "pod.example:8091"
OWN = {"host": HOST, "origin": f"http://{HOST}", "content-type": "application/json"}


class User(NamedTuple):
    """Somebody."""

    name: str
    role: Role = Role.USER


ANYBODY = User("anonymous", Role.READER)


class Fake:
    """A server of two users: alice by key, root by a link."""

    def __init__(self, *, secure: bool = False) -> None:
        self.secure = secure
        self.gone: set[str] = set()
        self.used = False
        self.acts: list[tuple[str, str, Any]] = []

    def anonymous(self) -> User | None:
        return None if self.secure else ANYBODY

    async def by_token(self, token: str) -> User:
        if token != "right":
            raise Unauthenticated("no such link")
        if self.used:
            raise Unauthenticated("the link has been used")
        self.used = True
        return User("root", Role.ADMINISTRATOR)

    async def by_key(self, name: str, key: str) -> User:
        if (name, key) != ("alice", "secret"):
            raise Unauthenticated("no such user")
        return User("alice")

    def by_proxy(self, name: str) -> User:
        if name not in ("alice", "root") or name in self.gone:
            raise Unauthenticated("the site's proxy says somebody else")
        return User(name, Role.ADMINISTRATOR if name == "root" else Role.USER)

    def known(self, who: Any) -> bool:
        return who.name not in self.gone

    async def listed(self, who: Any, method: str) -> Any:
        return METHODS[method].reply()

    async def folded(self) -> bool:
        return False

    async def overview(self, who: Any) -> dict[str, dict[str, object]]:
        return {}

    async def opened(self, who: Any, domain: str) -> dict[str, dict[str, object]]:
        return {"devices": {f"{domain}/0": who.name}}

    async def table(self, who: Any, query: TableQuery) -> dict[str, object]:
        return {"topics": {query.topic: {query.find: who.name}}, "next": query.after}

    async def act(self, who: Any, method: str, body: bytes) -> bytes:
        if who.role is not Role.ADMINISTRATOR:
            raise Denied("that is an administrator's")
        self.acts.append((who.name, method, json.loads(body)))
        return b"{}"

    def audience(self, who: Any) -> str:
        return str(who.name)

    async def own(self, who: Any) -> str | None:
        return None if who.role is Role.ADMINISTRATOR else str(who.name)

    def counted(self) -> int:
        return 0

    def conditions(self, who: Any) -> dict[str, object] | None:
        return None

    def describe(self) -> dict[str, object]:
        return {"version": "1", "simulated": True}


class Browser:
    """Requests the page, and keeps its cookie."""

    def __init__(
        self, fake: Fake, *, safe_login: bool = True, proxy: SiteProxy | None = None
    ) -> None:
        self.page = Page(fake, safe_login=safe_login, proxy=proxy)
        self.cookie = self.secret = ""
        self.address = "127.0.0.1"

    async def ask(
        self, method: str, path: str, value: object = None, **headers: str
    ) -> tuple[int, Any]:
        sent = {**OWN, "cookie": self.cookie, "x-podwright-session": self.secret}
        sent.update((name.replace("_", "-"), text) for name, text in headers.items())
        pairs = [(name.encode(), text.encode()) for name, text in sent.items() if text]
        body = b"" if value is None else json.dumps(value).encode()
        reply = await self.page.answer(
            HttpRequest(method, path, "", pairs, body, None, self.address)
        )
        assert reply is not None
        header = dict(reply.headers)
        assert header[b"content-security-policy"] == CONTENT_SECURITY_POLICY.encode()
        assert header[b"x-frame-options"] == b"DENY"
        if b"set-cookie" in header:
            text = header[b"set-cookie"].decode()
            assert "HttpOnly" in text
            assert "SameSite=Strict" in text
            self.cookie = text.partition(";")[0]
        body = reply.body if isinstance(reply.body, bytes) else b"null"
        found: Any = json.loads(body) if reply.kind.endswith("json") else body
        if (method, path, reply.status) == ("POST", "/session", 200):
            self.secret = found.pop("secret")
        return reply.status, found

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request that only reads."""
        sent = (("host", HOST), ("cookie", self.cookie), ("x-podwright-session", self.secret))
        return [(name.encode(), text.encode()) for name, text in sent]

    async def act(self, **headers: str) -> int:
        status, _ = await self.ask(
            "POST",
            "/act",
            {"method": "DrainMachine", "request": {"name": "ag1"}},
            **headers,
        )
        return status


async def test_a_one_time_link_logs_its_user_in_once() -> None:
    fake = Fake()
    browser = Browser(fake)
    assert (await browser.ask("GET", "/me"))[1]["name"] == "anonymous"
    assert await browser.act() == 401
    said = (200, {"name": "root", "role": "administrator"})
    assert await browser.ask("POST", "/session", {"token": "right"}) == said
    assert (await browser.ask("GET", "/me"))[1]["name"] == "root"
    assert await browser.act() == 200
    assert fake.acts == [("root", "DrainMachine", {"name": "ag1"})]
    assert (await Browser(fake).ask("POST", "/session", {"token": "wrong"}))[0] == 401
    assert (await browser.ask("POST", "/session", {"token": "right"}))[0] == 401, "used twice"
    await browser.ask("DELETE", "/session")
    assert await browser.act() == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": ""},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
    ],
)
async def test_a_request_from_another_site_changes_nothing(headers: dict[str, str]) -> None:
    fake = Fake()
    browser = Browser(fake)
    await browser.ask("POST", "/session", {"token": "right"})
    assert await browser.act(**headers) == 403
    assert not fake.acts
    other = Browser(fake)
    assert (await other.ask("POST", "/session", {"user": "alice", "key": "secret"}, **headers))[
        0
    ] == 403
    assert not other.cookie


async def test_a_cookie_without_its_secret_or_a_secret_without_its_cookie_is_refused() -> None:
    """A server on another port of the same host receives the cookie, but not the secret."""
    fake = Fake(secure=True)
    browser = Browser(fake)
    await browser.ask("POST", "/session", {"token": "right"})
    cookie, secret = browser.cookie, browser.secret
    assert cookie.startswith("podwright_session_8091=")
    assert secret not in cookie
    other = Browser(fake)
    await other.ask("POST", "/session", {"user": "alice", "key": "secret"})
    for half in (
        (cookie, ""),
        ("", secret),
        (cookie, secret[:-1]),
        (other.cookie, secret),
        (cookie, other.secret),
        (cookie.partition("=")[2], secret),
        (f"{cookie}; {other.cookie}", secret),
    ):
        browser.cookie, browser.secret = half
        assert await browser.act() == 401, half
        assert (await browser.ask("GET", "/live"))[0] == 401
        assert (await browser.ask("GET", "/v1/explain"))[0] == 401
    assert not fake.acts
    browser.cookie, browser.secret = f"a=b;{cookie} ; podwright_session=x", secret
    assert await browser.act() == 200


async def test_the_role_decides_about_each_call_and_other_calls_are_refused() -> None:
    fake = Fake()
    browser = Browser(fake)
    assert (await browser.ask("POST", "/session", {"user": "alice", "key": "x"}))[0] == 401
    assert (await browser.ask("POST", "/session", {"user": "alice", "key": "secret"}))[0] == 200
    assert await browser.act() == 403
    assert (await browser.ask("POST", "/act", {"method": "CreateUser"}))[0] == 400
    assert (await browser.ask("POST", "/act", {"method": "DrainMachine", "more": 1}))[0] == 400


async def test_a_user_who_was_removed_is_logged_out() -> None:
    fake = Fake()
    browser = Browser(fake)
    await browser.ask("POST", "/session", {"token": "right"})
    fake.gone.add("root")
    assert await browser.act() == 401
    assert (await browser.ask("GET", "/me"))[1]["name"] == "anonymous"


@pytest.mark.parametrize("how", ["removed", "logged out"])
async def test_the_stream_of_a_page_ends_with_its_session(how: str) -> None:
    fake = Fake(secure=True)
    browser = Browser(fake)
    await browser.ask("POST", "/session", {"token": "right"})
    asked = HttpRequest("GET", "/live", "", browser.headers, b"", None, "127.0.0.1")
    reply = cast("Reply", await browser.page.answer(asked))
    events = cast("AsyncGenerator[bytes]", reply.body)
    assert (await anext(events)).startswith(b"event: all")
    if how == "removed":
        fake.gone.add("root")
    else:
        await browser.ask("DELETE", "/session")
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    await browser.page.close()


async def test_a_secure_server_shows_nothing_to_callers_without_credentials() -> None:
    browser = Browser(Fake(secure=True))
    assert (await browser.ask("GET", "/live"))[0] == 401
    assert (await browser.ask("GET", "/me"))[1]["name"] == ""
    await browser.ask("POST", "/session", {"user": "alice", "key": "secret"})
    assert (await browser.ask("GET", "/live"))[0] == 200


async def test_an_access_key_is_refused_on_a_connection_that_others_can_read() -> None:
    browser = Browser(Fake(), safe_login=False)
    said = await browser.ask("POST", "/session", {"user": "alice", "key": "secret"})
    assert said[0] == 403
    assert "for all to read" in said[1]["message"]
    assert (await browser.ask("POST", "/session", {"token": "right"}))[0] == 200


@pytest.mark.parametrize("path", ["/", "/pod", "/partitions/p%201", "/events", "/static/app.js"])
async def test_a_file_is_served_with_its_type_and_a_tag_for_caches(path: str) -> None:
    page = Browser(Fake()).page
    asked = HttpRequest("GET", path, "", [(b"host", HOST.encode())], b"", None, "")
    reply = cast("Reply", await page.answer(asked))
    assert reply.status == 200
    assert reply.kind.startswith("text/javascript" if path.endswith("js") else "text/html")
    tag = dict(reply.headers)[b"etag"]
    again = asked._replace(headers=[*asked.headers, (b"if-none-match", tag)])
    assert cast("Reply", await page.answer(again)).status == 304


@pytest.mark.parametrize(
    "path",
    [
        "/static/../_page_http_handler.py",
        "/static/..%2f_page_http_handler.py",
        "/static/",
        "/metrics",
        "/v1/devices",
    ],
)
async def test_a_path_that_is_not_the_pages_has_no_answer(path: str) -> None:
    page = Browser(Fake()).page
    assert await page.answer(HttpRequest("GET", path, "", [], b"", None, "")) is None


def test_a_session_ends_by_time_and_a_user_has_a_bounded_number() -> None:
    now = [0.0]
    sessions: Sessions[str] = Sessions(clock=lambda: now[0])
    cookie = sessions.open("alice", "alice")
    assert sessions.caller(cookie) == "alice"
    assert sessions.caller(cookie._replace(cookie=cookie.cookie + "x")) is None
    assert sessions.caller(cookie._replace(secret=cookie.secret + "x")) is None
    assert sessions.caller(cookie._replace(secret="")) is None
    assert sessions.caller(cookie._replace(cookie="")) is None
    for _ in range(int(SESSION_MAX_AGE_S / (SESSION_IDLE_S / 2)) - 1):
        now[0] += SESSION_IDLE_S / 2
        assert sessions.caller(cookie) == "alice"
    now[0] += SESSION_IDLE_S / 2
    assert sessions.caller(cookie) is None, "too old, though it was used"
    cookie = sessions.open("alice", "alice")
    now[0] += SESSION_IDLE_S
    assert sessions.caller(cookie) is None, "not used"
    first, *_ = [sessions.open("bob", "bob") for _ in range(EACH + 1)]
    assert sessions.caller(first) is None
    for number in range(2 * MAX_SESSIONS):
        sessions.open("x", str(number))
    assert len(sessions) == MAX_SESSIONS


SECRET = "0123456789abcdef"


def site_proxy(*peers: str, secret: str = "") -> SiteProxy:
    """A proxy on a machine that has the address 10.0.0.7, whichever this one has."""
    return SiteProxy(peers, secret=secret, is_own=lambda address: address == "10.0.0.7")


@pytest.mark.parametrize(
    ("peers", "secret", "address", "headers", "name"),
    [
        (["10.0.0.5"], "", "10.0.0.5", {}, "alice"),
        (["10.0.0.0/24"], "", "::ffff:10.0.0.9", {}, "alice"),
        (["10.0.0.5"], "", "10.0.0.6", {}, "anonymous"),
        (["10.0.0.5"], "", "127.0.0.1", {}, "anonymous"),
        (["10.0.0.5"], SECRET, "10.0.0.5", {}, "anonymous"),
        (["127.0.0.1"], SECRET, "127.0.0.1", {}, "anonymous"),
        (
            ["127.0.0.1"],
            SECRET,
            "127.0.0.1",
            {"x_podwright_proxy": SECRET[:-1]},
            "anonymous",
        ),
        (
            ["127.0.0.1"],
            SECRET,
            "127.0.0.1",
            {"x_podwright_proxy": SECRET},
            "alice",
        ),
    ],
)
async def test_the_users_header_counts_only_from_the_sites_proxy(
    peers: list[str], secret: str, address: str, headers: dict[str, str], name: str
) -> None:
    browser = Browser(Fake(), proxy=site_proxy(*peers, secret=secret))
    browser.address = address
    said = await browser.ask("GET", "/me", x_remote_user="alice", **headers)
    assert said[1]["name"] == name


async def test_a_caller_on_this_machine_is_no_proxy_without_the_secret() -> None:
    """Every account here can connect from any of its addresses, including those of a network."""
    for secret, sent, name in (("", "", "anonymous"), (SECRET, SECRET, "alice")):
        browser = Browser(Fake(), proxy=site_proxy("10.0.0.0/24", secret=secret))
        for address in ("10.0.0.7", "::ffff:10.0.0.7"):
            browser.address = address
            said = await browser.ask("GET", "/me", x_remote_user="alice", x_podwright_proxy=sent)
            assert said[1]["name"] == name
    with pytest.raises(InvalidRequest, match="every account of this machine"):
        site_proxy("10.0.0.7")
    assert site_proxy("10.0.0.7", secret=SECRET)


async def test_the_user_whom_the_proxy_names_acts_in_their_role_from_the_page_alone() -> None:
    fake = Fake(secure=True)
    browser = Browser(fake, safe_login=False, proxy=site_proxy("10.0.0.5"))
    browser.address = "10.0.0.5"
    assert await browser.act(x_remote_user="root") == 200
    assert await browser.act(x_remote_user="alice") == 403
    assert await browser.act(x_remote_user="root", origin="http://evil.example") == 403
    assert await browser.act(x_remote_user="mallory") == 401
    assert await browser.act() == 401
    fake.gone.add("root")
    assert await browser.act(x_remote_user="root") == 401
    assert (await browser.ask("GET", "/live", x_remote_user="mallory"))[0] == 401


async def test_two_headers_with_a_user_are_refused() -> None:
    browser = Browser(Fake(), proxy=site_proxy("10.0.0.5"))
    headers = [(b"host", HOST.encode()), (b"x-remote-user", b"a"), (b"x-remote-user", b"root")]
    asked = HttpRequest("GET", "/me", "", headers, b"", None, "10.0.0.5")
    assert cast("Reply", await browser.page.answer(asked)).status == 401


async def test_behind_a_proxy_with_tls_access_keys_count_and_cookies_are_secure() -> None:
    browser = Browser(Fake(), safe_login=False, proxy=site_proxy("10.0.0.5"))
    key = {"user": "alice", "key": "secret"}
    for address, proto, status in (
        ("10.0.0.5", "https", 200),
        ("10.0.0.5", "http", 403),
        ("10.0.0.6", "https", 403),
    ):
        browser.address = address
        said = await browser.ask("POST", "/session", key, x_forwarded_proto=proto)
        assert said[0] == status


@pytest.mark.parametrize(
    ("peers", "header", "secret"),
    [
        (["127.0.0.1"], "X-Remote-User", ""),
        (["0.0.0.0/0"], "X-Remote-User", ""),
        (["::1"], "X-Remote-User", ""),
        (["proxy.example"], "X-Remote-User", ""),
        (["10.0.0.5"], "Host", ""),
        (["10.0.0.5"], "X Remote", ""),
        (["10.0.0.5"], "X-Remote-User", "short"),
    ],
)
def test_unsafe_settings_of_a_proxy_are_refused(peers: list[str], header: str, secret: str) -> None:
    with pytest.raises(InvalidRequest):
        SiteProxy(peers, header=header, secret=secret)


async def test_an_explanation_is_made_for_the_caller_of_the_page() -> None:
    fake = Fake()
    browser = Browser(fake)
    await browser.ask("POST", "/session", {"token": "right"})
    for query, status in (("name=w1", 200), ("", 400), ("name=", 400), ("name=a&name=b", 400)):
        asked = HttpRequest("GET", "/v1/explain", query, browser.headers, b"", None, "127.0.0.1")
        assert cast("Reply", await browser.page.answer(asked)).status == status
    assert fake.acts == [("root", "Explain", {"name": "w1"})]
    assert (await Browser(Fake(secure=True)).ask("GET", "/v1/explain"))[0] == 401
