"""Links to other pods on the page, between two real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.outer.page.conftest import Site
from tests.outer.page.test_page import live
from tests.ports import free_port

pytestmark = pytest.mark.outer


def test_the_page_links_other_pods_and_shows_their_health(
    make_site: Callable[..., Site], page: Page
) -> None:
    east = make_site("--preset", "pod4")
    away = f"http://127.0.0.1:{free_port()}/"
    peers = ("--peer", f"east={east.address}/", "--peer", f"north={away}")
    site = make_site("--preset", "pod16", *peers)
    page.goto(site.link())
    live(page)
    expect(page.locator("[data-pod=east]")).to_have_text("east healthy")
    expect(page.locator("[data-pod=north]")).to_have_text("north unreachable")
    assert page.locator("[data-pod=north] a").get_attribute("href") == away
    page.click("[data-pod=east] a")
    live(page)
    expect(page.locator("svg[role=group] .device.FREE")).to_have_count(4)
    expect(page.locator(".other-pods")).to_be_hidden()  # it has no peers
