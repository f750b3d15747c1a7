"""The page as people see it, in a real browser: every view, live, log-in, acting, two roles."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.outer.page.conftest import Site, pod_file
from tests.whole.conftest import BIN

pytestmark = pytest.mark.outer
VIEWS = {
    "pod": "Pod",
    "problems": "Problems",
    "line": "Queue",
    "partitions": "Partitions",
    "leases": "Leases",
    "machines": "Machines",
    "allocations": "Allocations",
    "quotas": "Quotas",
    "users": "Users",
    "events": "Events",
    "time": "Time",
}


def live(page: Page) -> None:
    expect(page.locator("#state")).to_have_text("live")


def visit(page: Page, name: str) -> None:
    """Go to a view by a link of the head, or of its menu."""
    place = page.locator(f"#views a[href='/{name}']")
    if not place.is_visible():
        page.click("#views summary")
    place.click()


def test_every_view_has_an_address_and_a_heading(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    page.goto(site.address)
    live(page)
    for name, title in VIEWS.items():
        visit(page, name)
        expect(page).to_have_url(f"{site.address}/{name}")
        expect(page.locator("h1")).to_have_text(title)
        expect(page.locator("#views a[aria-current]")).to_have_text(title)
        page.reload()
        expect(page.locator("h1")).to_have_text(title)
    page.go_back()


def test_partitions_and_launches_are_drawn_without_a_reload(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod64")
    page.goto(f"{site.address}/pod")
    live(page)
    expect(page.locator(".device.FREE")).to_have_count(64 + 1)  # and the legend's
    site.good("vipu", "create", "partition", "p1", "--size", "16")
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(16)
    cell = page.locator("svg[role=group] .device.IN_USE").first
    cell.hover()
    expect(page.locator("#about")).to_contain_text("by partition p1 of root")
    page.select_option("#by", "load")
    expect(page.locator(".legend")).to_contain_text("no program holds it")
    words = ("--launcher=local", "--vipu-partition=p1", "--num-replicas=16", "sleep", "600")
    sleeper = subprocess.Popen(
        [BIN / "poprun", *words], env=site.environ, cwd=site.folder, stdin=subprocess.DEVNULL
    )
    try:
        expect(page.locator(".legend")).to_contain_text("a program holds it")
        expect(page.locator(".legend")).not_to_contain_text("no program holds it")
    finally:
        sleeper.terminate()
        sleeper.wait(300)
    expect(page.locator(".legend")).to_contain_text("no program holds it")
    cell.hover()
    page.click("#about a")
    expect(page.locator("h1")).to_have_text("Partition p1")
    expect(page.locator("#main")).to_contain_text("vipu get partition p1")
    site.good("vipu", "remove", "partition", "p1")
    expect(page.locator("#main")).to_contain_text("There is none of this name now.")
    page.goto(f"{site.address}/pod?by=user&find=ag3")
    expect(page.locator("#by")).to_have_value("user")
    expect(page.locator("svg[role=group] .device:not(.faint)")).to_have_count(4)


def test_arrow_keys_walk_from_device_to_device(make_site: Callable[..., Site], page: Page) -> None:
    site = make_site("--preset", "pod16")
    page.goto(f"{site.address}/pod")
    page.locator("svg[role=group] .device").first.focus()
    for key, machine, index in (
        ("ArrowRight", "ag1", 1),
        ("ArrowDown", "ag2", 1),
        ("ArrowLeft", "ag2", 0),
        ("ArrowUp", "ag1", 0),
        ("ArrowUp", "ag1", 0),
    ):
        page.keyboard.press(key)
        expect(page.locator("#about")).to_contain_text(f"{machine} index {index}")


def test_a_pressed_button_is_not_drawn_anew_under_the_finger(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    page.goto(site.link())
    visit(page, "partitions")
    page.hover("[data-focus='Remove p1']")
    page.mouse.down()
    site.good("vipu", "create", "partition", "p2", "--size", "4")
    page.wait_for_function(
        "import('/static/live.js').then(({ topic }) => topic('partitions').size === 2)"
    )
    # The table's timer of 100 ms was set before this one.
    page.evaluate("new Promise((done) => setTimeout(done, 150))")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.mouse.up()
    expect(page.locator("#ask")).to_contain_text("vipu remove partition p1")
    expect(page.locator("tbody tr")).to_have_count(2)


def test_a_link_logs_in_and_an_action_first_says_what_it_ends(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    page.goto(f"{site.address}/partitions")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("td.act button")).to_have_count(0)
    link = site.link()
    page.goto(link)
    expect(page.locator("#who")).to_contain_text("root (administrator)")
    assert "token" not in page.url
    visit(page, "partitions")
    page.click("[data-focus='Remove p1']")
    dialog = page.locator("#ask")
    expect(dialog).to_contain_text("Nobody holds it.")
    expect(dialog).to_contain_text("vipu remove partition p1")
    dialog.get_by_text("Leave it").click()
    assert "p1" in site.partitions()
    page.click("[data-focus='Remove p1']")
    page.click("#yes")
    expect(page.locator("#main")).to_contain_text("There is no partition.")
    assert not site.partitions()
    visit(page, "events")
    expect(page.locator("tbody tr").first).to_contain_text("RemovePartition")
    page.click("#who button")
    expect(page.locator("#who")).to_contain_text("Log in")
    page.goto(link)
    expect(page.locator("[role=alert]").first).to_contain_text("the link has been used")


def test_a_user_acts_only_on_their_own_partitions(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    site.good("vipu", "create", "partition", "theirs", "--size", "4")
    page.goto(f"{site.address}/login")
    page.fill("#user", "alice")
    page.fill("#key", "wrong")
    page.click("form button")
    expect(page.locator("[role=alert]")).to_contain_text("no user of this server has this name")
    found = site.json("vipu-admin", "create", "user", "bob")
    page.fill("#user", "bob")
    page.fill("#key", found["access_key"])
    page.click("form button")
    expect(page.locator("#who")).to_contain_text("bob (user)")
    visit(page, "partitions")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("td.act button")).to_have_count(0)
    visit(page, "users")
    expect(page.locator("tbody")).to_contain_text("you may not see them")
    site.good("vipu-admin", "remove", "user", "bob")
    page.reload()
    expect(page.locator("#who")).to_contain_text("Log in")


def test_the_page_says_that_the_server_is_away_and_recovers_when_it_is_back(
    make_site: Callable[..., Site], page: Page
) -> None:
    site = make_site("--preset", "pod16")
    page.goto(f"{site.address}/pod")
    live(page)
    site.stop(signal.SIGKILL)
    expect(page.locator("#state")).to_contain_text("does not answer")
    site.start()
    live(page)
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(4)


def test_ten_tabs_of_one_browser_are_all_live(
    make_site: Callable[..., Site], browser: Browser
) -> None:
    """A browser opens six connections to a host: they share one."""
    site = make_site("--preset", "pod16")
    context = browser.new_context()
    context.set_default_timeout(60_000)
    tabs = [context.new_page() for _ in range(10)]
    for tab in tabs:
        tab.goto(f"{site.address}/partitions")
        live(tab)
    site.good("vipu", "create", "partition", "p1", "--size", "4")
    for tab in tabs:
        expect(tab.locator("tbody tr[data-row='p1']")).to_have_count(1)
    context.close()


_INTRUDE = """() => new Promise((resolve) => {
  const seen = [];
  document.addEventListener('securitypolicyviolation', (event) => {
    seen.push(event.effectiveDirective);
    if (seen.length === 3) resolve(seen.sort());
  });
  const script = document.createElement('script');
  script.textContent = 'globalThis.intruded = true';
  const image = document.createElement('img');
  image.src = 'http://192.0.2.1/x.png';
  const frame = document.createElement('iframe');
  frame.src = '/pod';
  document.body.append(script, image, frame);
})"""


def test_scripts_pictures_and_frames_from_elsewhere_are_refused(
    make_site: Callable[..., Site], browser: Browser
) -> None:
    site = make_site("--preset", "pod16")
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    answer = page.goto(site.address)
    assert answer is not None
    assert "unsafe" not in answer.headers["content-security-policy"]
    live(page)
    hosts = "() => performance.getEntriesByType('resource').map((one) => new URL(one.name).host)"
    assert set(page.evaluate(hosts)) == {f"127.0.0.1:{site.port}"}
    assert page.evaluate(_INTRUDE) == ["frame-src", "img-src", "script-src-elem"]
    assert page.evaluate("() => globalThis.intruded") is None
    context.close()


def test_a_thousand_devices_are_drawn_and_sixteen_thousand_are_folded(
    make_site: Callable[..., Site], page: Page, tmp_path: Path
) -> None:
    site = make_site("--cluster-file", pod_file(tmp_path, 16))
    page.goto(f"{site.address}/pod")
    expect(page.locator("svg[role=group] .device")).to_have_count(1024)
    site.good("vipu", "create", "partition", "p1", "--size", "64")
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(64)
    large = make_site("--cluster-file", pod_file(tmp_path, 256))
    page.goto(f"{large.address}/pod")
    expect(page.locator(".domain")).to_have_count(256)
    expect(page.locator("svg[role=group] .device")).to_have_count(0)
    page.locator(".domain button").first.click()
    expect(page.locator("svg[role=group] .device")).to_have_count(64)


def test_a_large_pod_shows_numbers_of_all_and_devices_of_an_opened_domain(
    make_site: Callable[..., Site], page: Page, tmp_path: Path
) -> None:
    """Of 4,096 devices: numbers of all, devices of a link domain, partitions in parts."""
    site = make_site("--cluster-file", pod_file(tmp_path, 64))
    site.good("vipu", "create", "partition", "first", "--size", "4")
    page.goto(f"{site.address}/pod")
    expect(page.locator(".numbers")).to_contain_text("4,096")
    expect(page.locator(".domain")).to_have_count(64)
    page.locator(".domain button").first.click()
    drawn = page.locator("svg[role=group] .device")
    expect(drawn).to_have_count(64)
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(4)
    page.locator("svg[role=group] .device.IN_USE").first.click()
    expect(page.locator(".side")).to_contain_text("Partition first")
    site.good("vipu", "create", "partition", "second", "--size", "8")
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(12)
    page.goto(f"{site.address}/partitions")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.fill("#find", "second")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.click("tbody a")
    expect(page.locator("h1")).to_have_text("Partition second")
    expect(page.locator("#main ul").first.locator("li")).to_have_count(2)
    site.good("vipu", "remove", "partition", "second")
    expect(page.locator("#main")).to_contain_text("There is none of this name now.")
    page.goto(f"{site.address}/machines?find=m63-")
    expect(page.locator("tbody tr")).to_have_count(16)
    page.fill("#find", "")
    expect(page.locator("tbody tr")).to_have_count(200)
    page.click("text=show more")
    expect(page.locator("tbody tr")).to_have_count(400)
