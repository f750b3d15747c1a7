"""Every view for those who cannot see or point: axe-core finds nothing, in light and in dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from tools.page_pictures import NOW, View, pod_scene, shown

from tests.outer.page.conftest import Site
from tests.outer.page.test_page import VIEWS
from tests.outer.page.test_problems import all_fourteen

pytestmark = pytest.mark.outer
#: WCAG 2.2 at level AA, and what axe counts as good practice.
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
}


def faults(page: Page, view: str) -> list[str]:
    """What axe finds, a line each: everything in light, and what depends on colours in dark."""
    out = []
    for scheme, rules in (("light", RULES), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(page, options=rules).response["violations"]
        out += [
            f"{view}, {scheme}: {one['id']}: {node['html'][:120]}"
            for one in found
            for node in one["nodes"][:3]
        ]
    return out


def faults_of_scene(
    browser: Browser | None, path: str, more: dict[str, Any] | None = None
) -> list[str]:
    """What axe finds in the scene of the pictures."""
    assert browser is not None
    with shown(browser, View("index.html", path), {**pod_scene(), **(more or {})}) as page:
        expect(page.locator("svg[role=group] .device")).to_have_count(64)
        return faults(page, path)


@pytest.fixture
def seen(browser: Browser) -> Iterator[Page]:
    """A tab into which axe may be put: here alone the page's own policy is passed by."""
    context = browser.new_context(bypass_csp=True)
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def test_axe_finds_no_fault_in_any_view(make_site: Callable[..., Site], seen: Page) -> None:
    site = make_site("--preset", "pod16")
    for name in ("p1", "p2"):
        site.good("vipu", "create", "partition", name, "--size", "4")
    site.good("vipu-admin", "create", "user", "bob")
    seen.goto(site.link())
    expect(seen.locator("#who")).to_contain_text("administrator")
    wrong = []
    for view in [*VIEWS, "partitions/p1", "login"]:
        seen.goto(f"{site.address}/{view}")
        expect(seen.locator("#state")).to_have_text("live")
        expect(seen.locator("h1")).to_have_count(1)
        wrong += faults(seen, view)
    seen.goto(f"{site.address}/partitions")
    seen.click("[data-focus='Remove p1']")
    expect(seen.locator("#yes")).to_be_visible()
    wrong += faults(seen, "asked")
    wrong += [
        *faults_of_scene(seen.context.browser, "/pod", {"problems": all_fourteen()}),
        *faults_of_scene(seen.context.browser, "/pod?way=w17"),
        *faults_of_scene(seen.context.browser, f"/pod?at={NOW - 1200}"),
    ]
    seen.goto(f"{site.address}/machines")
    seen.click("#views summary")
    wrong += faults(seen, "menu")
    seen.click("[data-focus='Drain ag1']")
    expect(seen.locator("#reason")).to_be_focused()
    wrong += faults(seen, "reason")
    assert wrong == []
