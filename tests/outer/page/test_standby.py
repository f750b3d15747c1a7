"""A page that is open on a server which stands by, and takes over."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.outer.page.conftest import Site
from tests.outer.postgres import Postgres

pytestmark = pytest.mark.outer


def test_a_standby_says_that_it_stands_by_and_shows_the_pod_once_it_takes_over(
    make_site: Callable[..., Site], page: Page, postgres: Postgres
) -> None:
    shared = ("--storage", postgres.url(), "--preset", "pod16")
    active, standby = make_site(*shared), make_site(*shared)
    active.good("vipu", "create", "partition", "p1", "--size", "4")
    page.goto(f"{standby.address}/pod")
    expect(page.locator("#state")).to_contain_text("stands by for another one")
    active.stop(signal.SIGKILL)
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(4)
    standby.good("vipu", "remove", "partition", "p1")
    expect(page.locator("svg[role=group] .device.IN_USE")).to_have_count(0)
